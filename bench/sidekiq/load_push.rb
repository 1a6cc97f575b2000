# Enqueues so many jobs of each kind: noop cpu io, rounds of those that compute, seconds of those that wait.
require_relative 'load'

noop, cpu, io, rounds = ARGV.first(4).map(&:to_i)
{ Noop => [noop, []], Cpu => [cpu, [rounds]], Io => [io, [ARGV[4].to_f]] }.each do |task, (number, args)|
  ([args] * number).each_slice(1000) { |some| Sidekiq::Client.push_bulk('class' => task, 'args' => some) }
end
