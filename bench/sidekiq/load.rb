# Jobs of three kinds for Sidekiq: that do nothing, that compute, and that wait. A process says when it is ready, waits at a gate, and
# says at its end when the last job of each kind had ended.
require 'json'
require 'sidekiq'
require_relative 'connect'

ENDS = {}

class Noop
  include Sidekiq::Worker
  sidekiq_options queue: 'noop'

  def perform
    ENDS['noop'] = Time.now.to_f
  end
end

class Cpu
  include Sidekiq::Worker
  sidekiq_options queue: 'cpu'

  def perform(rounds)
    total = 0
    number = 0
    while number < rounds
      total += number * number % 7
      number += 1
    end
    ENDS['cpu'] = Time.now.to_f
  end
end

class Io
  include Sidekiq::Worker
  sidekiq_options queue: 'io'

  def perform(seconds)
    sleep(seconds)
    ENDS['io'] = Time.now.to_f
  end
end

Sidekiq.configure_server do |config|
  config.on(:startup) do
    File.write("ready-#{Process.pid}", '')
    sleep(0.005) until File.exist?('gate')
  end
  at_exit do
    cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    File.write("ran-#{Process.pid}", JSON.generate('ends' => ENDS, 'cpu' => cpu))
  end
end
