-- Tells what there is of a key. Promises: writes nothing.
local meta, waiters, result, stream = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- Of those who wait, no more are counted.
local MOST = 10000
local record, is_other = read(meta)
if is_other then
  return { 'OTHER' }
elseif not record then
  return { 'NONE' }
end
local function ms(us)
  return math.ceil(math.max(us, 0) / 1000)
end
local waiting = 0
if record.status == 'running' and is(waiters, 'zset') then
  local dead = '(' .. int(math.floor(now / 1000))
  waiting = #redis.call('ZRANGE', waiters, dead, '+inf', 'BYSCORE', 'LIMIT', 0, MOST)
end
local stored = is(result, 'string') and int(redis.call('STRLEN', result)) or ''
local streamed = is(stream, 'stream') and record.next or 0
-- Most tokens are the time at which they were given out: so are those of a record that
-- does not say more.
local since = number(record.since) or record.ownerToken
return { 'KEY', record.ownerToken, record.flight, record.status,
  ms(now - since), ms(record.leaseEnd - now), ms(now - record.heartbeatAt),
  ms(now - record.endedAt), ms(record.markEnd - now), waiting, stored, streamed, record.badge or '' }
