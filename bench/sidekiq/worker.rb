# The job of the benchmark: it does nothing, but the first and the last say when they ran.
require 'sidekiq'

options = { url: ENV.fetch('REDIS_URL') }
begin
  require 'hiredis'
  options[:driver] = :hiredis
rescue LoadError
  # ruby-hiredis is not installed: the plain driver is slower
end
Sidekiq.configure_server { |config| config.redis = options }
Sidekiq.configure_client { |config| config.redis = options }
# As it comes, it logs two lines per job, which is half of a no-op job's time.
Sidekiq.logger.level = Logger::WARN if ENV['SIDEKIQ_QUIET']

class Plain
  include Sidekiq::Worker

  def perform(number, _text)
    return unless number.zero? || number == LAST

    File.write(ENV.fetch('SIDEKIQ_RAN'), "#{Process.clock_gettime(Process::CLOCK_REALTIME)}\n", mode: 'a')
  end

  LAST = ENV.fetch('SIDEKIQ_JOBS', '0').to_i - 1
end
