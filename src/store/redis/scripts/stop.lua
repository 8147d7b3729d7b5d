-- Stops the flight that runs, for all who take part. Promises: its owner can publish
-- nothing more, and everybody is told why; touches nothing that has ended. Works where
-- memory is full.
local meta, waiters, channels, publish = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local record = read(meta)
if record and record.status == 'running' then
  redis.call('HDEL', meta, 'probe')
  redis.call('HSET', meta, 'status', 'stopped', 'endedAt', at)
  redis.call('DEL', waiters)
  push(publish, channels, meta, 'E', record, 'stopped')
end
return { 'OK' }
