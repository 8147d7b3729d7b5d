-- Own, follow, look or take over: one step decides which it is.
--
-- Promises: a lease is granted only where none stands; tokens of a key grow; who
-- knows token N gets no outcome older than N; a look grants nothing.
local meta, waiters, result, stream, seq = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local flight = ARGV[1]

-- Nobody has the key, and who asks knows of no flight, as nearly all who own. What others
-- left of it, if anything, is seen to when it is met.
local size, last_token = redis.pcall('HLEN', meta), nil
if size == 0 and seq and ARGV[3] == '0' and not ARGV[9] then
  -- Refused where memory is full, with nothing written yet.
  last_token = redis.pcall('SET', seq, at, 'GET')
  -- Texts of one length are in the order of their numbers.
  if not last_token or type(last_token) == 'string' and #last_token == #at
    and not string.find(last_token, '%D') and last_token < at then
    redis.call('HSET', meta, 'format', FORMAT, 'ownerToken', at, 'flight', flight,
      'status', 'running', 'heartbeatAt', at, 'lease', ARGV[4], 'badge', ARGV[7])
    redis.call('PEXPIRE', meta, 2 * ARGV[4])
    return { 'OWN', at }
  end
end
-- An answer that is there, for one who takes an older one, as nearly all who find one.
local INLINE = 4096
if ARGV[3] == '0' and ARGV[5] ~= '0' and type(size) == 'number' and size > 0 and size < 64 then
  local found = redis.call('HMGET', meta, 'format', 'status', 'endedAt', 'fresh', 'flight',
    'ownerToken', 'next', 'sealed')
  local ended, fresh, token, id = found[3] or '', found[4] or '', found[6] or '', found[5] or ''
  if found[1] == FORMAT and found[2] == 'done' and id ~= flight and not found[7] and not found[8]
    and #ended <= 16 and #fresh <= 16 and #token <= 16 and #id == 32
    and string.find(ended, '^%d+$') and string.find(fresh, '^%d+$')
    and string.find(token, '^[1-9]%d*$') then
    -- A step back of the clock is no age.
    local age = math.max(at - ended, 0)
    if age < fresh * 1000 and age < ARGV[5] * 1000 then
      -- One byte more than it would give: then it is too large for a script.
      local body = redis.pcall('GETRANGE', result, 0, INLINE)
      if type(body) == 'string' and body ~= '' then
        return { 'DONE', token, id, 0, #body <= INLINE and body, 1,
          math.floor(age / 1000) }
      end
    end
  end
end
