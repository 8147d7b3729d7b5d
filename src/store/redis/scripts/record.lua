-- What steps share that look closely. A record that is damaged, foreign or of another
-- format reads as none, and is never a script error.

local now = tonumber(at)
-- Beyond some 16 digits a Lua number is not exact. No honest one comes near.
local LIMIT = 9000000000000000

-- A plain `..` would write 1795968540019938 as 1.7959685400199e+15.
local function int(n)
  return string.format('%.0f', n)
end

local function is(key, kind)
  return redis.call('TYPE', key).ok == kind
end

local function is_end(status)
  return status == 'done' or status == 'failed' or status == 'timedout' or status == 'private'
    or status == 'toolarge' or status == 'abandoned' or status == 'forgotten'
    or status == 'stopped'
end

-- What an owner is told of an end that is somebody else's word.
local function told(status)
  return status == 'forgotten' and 'FORGOTTEN' or status == 'stopped' and 'STOPPED' or nil
end

-- The number that a text is; none where the scripts would not have written it so.
local function number(text)
  if text and #text <= 16 and (text == '0' or string.find(text, '^[1-9]%d*$')) then
    local n = tonumber(text)
    return n < LIMIT and n or nil
  end
end

local function is_number(name)
  return name == 'ownerToken' or name == 'heartbeatAt' or name == 'lease' or name == 'endedAt'
    or name == 'markEnd' or name == 'prevToken' or name == 'failures' or name == 'losses'
    or name == 'joins' or name == 'next' or name == 'trimmed'
end

local function is_flight(text)
  return text and #text == 32 and not string.find(text, '[^0-9a-f]')
end

-- Marks outlive what they mark: none lasts longer than its key, by more than a second.
local function horizon(key)
  local left = redis.call('PTTL', key)
  return left >= 0 and math.floor(now / 1000) + left + 1000 or nil
end

-- The record; none, and true, where it is another release's, which lives by rules that
-- this one does not know. What is not written is zero, or empty. `trusted`: by whoever
-- names the flight, and asks for nothing that lasts.
local function read(key, trusted)
  local size = redis.pcall('HLEN', key)
  if type(size) ~= 'number' or size == 0 or size > 64 then
    return nil, false
  end
  local flat = redis.call('HGETALL', key)
  local record = {
    heartbeatAt = 0, lease = 0, endedAt = 0, markEnd = 0, prevToken = 0, failures = 0,
    losses = 0, joins = 0, next = 0, trimmed = 0, prevFlight = '', prevStatus = '',
  }
  local is_whole = true
  for i = 1, #flat, 2 do
    local name, value = flat[i], flat[i + 1]
    if is_number(name) then
      value = number(value)
      is_whole = is_whole and value ~= nil
    end
    record[name] = value
  end
  local last_ms = not trusted and horizon(key)
  if last_ms == nil then
    return nil, false
  elseif record.format ~= FORMAT then
    return nil, string.find(record.format or '', '^%d%d?%d?$') ~= nil
  end
  local status, prev = record.status, record.prevStatus
  local lease_end = is_whole and status == 'running'
    and record.heartbeatAt + record.lease * 1000 or 0
  if not (is_whole and record.ownerToken and is_flight(record.flight)
      and (status == 'running' or status == 'lost' or is_end(status))
      and (prev == '' and record.prevFlight == '' or is_end(prev) and is_flight(record.prevFlight))
      and record.trimmed <= record.next)
    or last_ms and math.max(lease_end, record.markEnd) > last_ms * 1000 then
    return nil, false
  end
  record.leaseEnd = lease_end
  return record, false
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
      and status ~= 'running' and status ~= 'lost' and not told(status))
    or (record.prevToken == token and record.prevFlight == flight
      and not told(record.prevStatus))
end

-- Why a flight is not its owner's, where it did not end by its own word.
local function lost(record, token, flight)
  if not record then
    return { 'MISSING' }
  end
  local word
  if record.ownerToken == token and record.flight == flight then
    word = told(record.status)
  elseif record.prevToken == token and record.prevFlight == flight then
    word = told(record.prevStatus)
  end
  return word and { word } or { 'SUPERSEDED', record.ownerToken }
end

-- Drops the marks that have run out, and those that nobody can have set.
local function purge(waiters)
  local now_ms = math.floor(now / 1000)
  local last_ms = horizon(waiters)
  redis.call('ZREMRANGEBYSCORE', waiters, '-inf', now_ms)
  redis.call('ZREMRANGEBYSCORE', waiters, '(' .. int(last_ms or now_ms), '+inf')
end

-- How many wait; the dead are dropped on the way.
local function live(waiters)
  if not is(waiters, 'zset') then
    return 0
  end
  purge(waiters)
  return redis.call('ZCARD', waiters)
end

-- Makes a key last at least this long.
local function last(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms)
  end
end

-- How many pieces the running flight's stream has had. What is no stream makes way
-- for one, and where it is gone the pieces are gone with it.
local function pieces(record, key)
  if record.next == 0 then
    return 0
  end
  local kind = redis.call('TYPE', key).ok
  if kind == 'stream' then
    return record.next
  elseif kind ~= 'none' then
    redis.call('DEL', key)
  end
  return 0
end

-- What is known of a refusal: that a stream has a later entry, that something else lies
-- under its name.
local function is_ahead(refusal)
  return string.find(refusal, '^ERR The ') ~= nil
end

local function is_foreign(refusal)
  return string.find(refusal, 'WRONGTYPE', 1, true) ~= nil
end

local function index(n)
  return string.format('%020.0f', n)
end

-- A push is a hint: where the user may not publish, the step stands all the same.
-- A cluster has a command of its own for it. The channel ends as the record's name does.
local function push(publish, channels, meta, kind, record, status, body)
  local letter = status == 'toolarge' and 'l' or status == 'forgotten' and 'a'
    or string.sub(status, 1, 1)
  local channel = channels .. string.sub(meta, -66)
  redis.pcall(publish or 'PUBLISH', channel, FORMAT .. kind .. letter .. record.flight
    .. index(record.ownerToken) .. (body or ''))
end
