# Says how often a loop goes round in so many CPU seconds: the median of a few tries.
def spin(rounds)
  before = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
  total = 0
  number = 0
  while number < rounds
    total += number * number % 7
    number += 1
  end
  Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - before
end

100.times { spin(1000) }  # a compiler waits until a method has been called some times
tries = Array.new(15) { 200_000 / spin(200_000) }.sort
puts (tries[7] * ARGV[0].to_f).round
