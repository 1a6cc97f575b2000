# Where Sidekiq finds its server, with the faster driver where it is installed.
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
