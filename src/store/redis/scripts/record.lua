-- What every step shares. TIME is read once. A record that is damaged, foreign
-- or of another format reads as none, and is never a script error.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local now_ms = math.floor(now / 1000)

-- A plain `..` would write 1795968540019938 as 1.7959685400199e+15.
local function int(n)
  return string.format('%.0f', n)
end

local function is(key, kind)
  return redis.call('TYPE', key).ok == kind
end

local WORDS = {
  running = true, done = true, failed = true, timedout = true,
  private = true, toolarge = true, abandoned = true, forgotten = true, lost = true,
}
-- Beyond some 16 digits a Lua number is not exact. No honest one comes near.
local LIMIT = 9000000000000000

local NUMBERS = {
  'ownerToken', 'leaseEnd', 'prevToken', 'failures', 'losses', 'joins', 'endedAt', 'markEnd',
  'next', 'trimmed',
}

local function read(key)
  if not is(key, 'hash') or redis.call('HLEN', key) > 64 then
    return nil
  end
  local flat, record = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    record[flat[i]] = flat[i + 1]
  end
  if record.format ~= '1' or not WORDS[record.status or ''] or #(record.flight or '') ~= 32
    or not record.prevFlight or not record.prevStatus then
    return nil
  end
  -- A record that was written before there were streams says nothing of them.
  record.next, record.trimmed = record.next or '0', record.trimmed or '0'
  for _, name in ipairs(NUMBERS) do
    local text = record[name] or ''
    if #text > 16 or not string.find(text, '^%d+$') or tonumber(text) >= LIMIT then
      return nil
    end
    record[name] = tonumber(text)
  end
  return record
end

local function owned(record, token, flight)
  return record and record.ownerToken == token and record.flight == flight
    and record.status == 'running' and now < record.leaseEnd
end

local function ended_by(record, token, flight)
  if not record then
    return false
  end
  local status = record.status
  return (record.ownerToken == token and record.flight == flight
      and status ~= 'running' and status ~= 'lost' and status ~= 'forgotten')
    or (record.prevToken == token and record.prevFlight == flight
      and record.prevStatus ~= 'forgotten')
end

-- Why a flight is not its owner's, where it did not end by its own word.
local function lost(record, token, flight)
  if not record then
    return { 'MISSING' }
  end
  if (record.ownerToken == token and record.flight == flight and record.status == 'forgotten')
    or (record.prevToken == token and record.prevFlight == flight
      and record.prevStatus == 'forgotten') then
    return { 'FORGOTTEN' }
  end
  return { 'SUPERSEDED', int(record.ownerToken) }
end

-- How many wait; the dead are dropped on the way.
local function live(waiters)
  if not is(waiters, 'zset') then
    return 0
  end
  redis.call('ZREMRANGEBYSCORE', waiters, '-inf', int(now_ms))
  return redis.call('ZCARD', waiters)
end

-- Makes a key last at least this long.
local function last(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, int(ms))
  end
end

-- How many pieces the running flight's stream has had. What is no stream makes way
-- for one, and where it is gone the pieces are gone with it.
local function pieces(record, key)
  local kind = redis.call('TYPE', key).ok
  if kind == 'stream' then
    return record.next
  elseif kind ~= 'none' then
    redis.call('DEL', key)
  end
  return 0
end

-- Whether a stream refused an entry since it has a later one.
local function is_ahead(refusal)
  return string.find(refusal, '^ERR The ') ~= nil
end

local function index(n)
  return string.format('%020.0f', n)
end

local LETTERS = {
  running = 'r', done = 'd', failed = 'f', timedout = 't', private = 'p', toolarge = 'l',
  abandoned = 'a', forgotten = 'a',
}

-- A push is a hint: where the user may not publish, the step stands all the same.
local function push(channel, kind, record, status, body)
  redis.pcall('PUBLISH', channel, '1' .. kind .. LETTERS[status] .. record.flight
    .. index(record.ownerToken) .. (body or ''))
end
