-- Forgets what a key has: whoever comes next begins a new flight. Promises: touches
-- no outcome that somebody who followed may still come for; the owner of a running
-- flight can publish nothing more, and is told why.
local meta, channels, publish = KEYS[1], ARGV[1], ARGV[2]
local record = read(meta)
if record and record.status == 'running' then
  redis.call('HSET', meta, 'status', 'forgotten', 'endedAt', at)
  push(publish, channels, meta, 'R', record, 'forgotten')
elseif record and record.status == 'done' then
  redis.call('HSET', meta, 'fresh', '0')
end
return { 'OK' }
