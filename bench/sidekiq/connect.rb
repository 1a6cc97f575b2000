# Where Sidekiq finds its server, and what its users set for speed.
options = { url: ENV.fetch('REDIS_URL') }
begin
  require 'hiredis'
  options[:driver] = :hiredis
rescue LoadError
  # ruby-hiredis is not installed: the plain driver is slower
end
Sidekiq.configure_server { |config| config.redis = options }
Sidekiq.configure_client { |config| config.redis = options }

# Debian has Sidekiq 6.4 with redis-rb 4.8, which warns of two calls of Sidekiq's at each use: SADD of one member (one for each
# perform_async) and BRPOP with a plain time-out (one for each job that a worker fetches). redis-rb can be told not to warn. It would
# still build the text about SADD each time; Sidekiq ignores the answer of SADD, so it may have the new one, which needs no text.
Redis.silence_deprecations = true
Redis.sadd_returns_boolean = false if Redis.respond_to?(:sadd_returns_boolean=)

# Runs a job without writing of it.
class NoJobLog
  def prepare(_job)
    yield
  end

  def call(_job, _queue)
    yield
  end
end

# Otherwise it logs two lines per job, which is half of a no-op job's time.
if ENV['SIDEKIQ_QUIET']
  Sidekiq.logger.level = Logger::WARN
  Sidekiq.options[:job_logger] = NoJobLog
end
