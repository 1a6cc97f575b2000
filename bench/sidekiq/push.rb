# Enqueues jobs one by one or in bulk, and prints how many per second that was.
require_relative 'worker'

how, jobs = ARGV[0], ARGV[1].to_i
Sidekiq.redis(&:ping)
start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
if how == 'bulk'
  (0...jobs).each_slice(1000) { |numbers| Sidekiq::Client.push_bulk('class' => Plain, 'args' => numbers.map { |n| [n, 'welcome'] }) }
else
  jobs.times { |n| Plain.perform_async(n, 'welcome') }
end
puts jobs / (Process.clock_gettime(Process::CLOCK_MONOTONIC) - start)
