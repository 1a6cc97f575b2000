# The job of the benchmark: it does nothing, but the first and the last say when they ran.
require 'sidekiq'
require_relative 'connect'

class Plain
  include Sidekiq::Worker

  def perform(number, _text)
    return unless number.zero? || number == LAST

    File.write(ENV.fetch('SIDEKIQ_RAN'), "#{Process.clock_gettime(Process::CLOCK_REALTIME)}\n", mode: 'a')
  end

  LAST = ENV.fetch('SIDEKIQ_JOBS', '0').to_i - 1
end
