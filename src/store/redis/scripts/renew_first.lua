-- Keeps a lease, and the stream of the flight. Promises: only the owner of a standing
-- lease is renewed, and whoever is not changes and creates nothing. Works where memory
-- is full.
local meta, waiters, stream = KEYS[1], KEYS[2], KEYS[3]

-- A record that has what each grant writes, and no more: nobody has joined, and there is no
-- stream. So are nearly all.
local GRANTED = 7
if waiters and redis.pcall('HLEN', meta) == GRANTED then
  local held = redis.call('HMGET', meta, 'ownerToken', 'flight', 'status', 'heartbeatAt',
    'lease', 'format')
  local since, lease = held[4] or '', held[5] or ''
  if held[1] == ARGV[1] and held[2] == ARGV[2] and held[3] == 'running' and held[6] == FORMAT
    and #since == #at and #lease > 0 and #lease <= 13
    and string.find(lease .. since, '^[1-9]%d*$') then
    -- None stands for longer than its record lasts, by more than a second.
    local left, lasts = since + lease * 1000 - at, redis.call('PTTL', meta)
    if left > 0 and lasts >= 0 and left <= (lasts + 1000) * 1000 then
      redis.call('PEXPIRE', meta, 2 * ARGV[3])
      redis.call('HSET', meta, 'heartbeatAt', at, 'lease', ARGV[3])
      return 'OK'
    end
  end
end
