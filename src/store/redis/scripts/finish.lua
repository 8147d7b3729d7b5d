-- The rest of it: all that is not as it mostly is.
local token, channels, fresh, body = tonumber(ARGV[1]), ARGV[5], ARGV[7] or '0', ARGV[8]
local report, count, proof, publish = ARGV[9], tonumber(ARGV[10]), ARGV[11], ARGV[12]
keep = tonumber(keep)
local PUSH_MAX = 20480
local sealed = form == 'sealed'

local record = read(meta, true)
if not owned(record, token, flight) then
  if staged then
    redis.call('DEL', staged)
  end
  if ended_by(record, token, flight) then
    return { 'OK' }
  end
  return lost(record, token, flight)
end

local there = stream and pieces(record, stream) or 0
if sealed and count ~= there then
  return { 'GAP', there }
end
if (status == 'done' and form == 'kept') or status == 'abandoned' then
  if live(waiters) > 0 then
    return { 'WANTED' }
  end
  status, sealed = 'abandoned', false
end

-- The first write is one that is allowed where memory is full.
redis.call('PEXPIRE', meta, keep)
-- A stream says itself how it ended.
if there > 0 or sealed then
  local id = int(token) .. '-' .. int(there + 1)
  local function write_end()
    if sealed then
      return redis.pcall('XADD', stream, id, 'end', status, 'flight', flight,
        'pieces', count, 'proof', proof)
    end
    return redis.pcall('XADD', stream, id, 'end', status, 'flight', flight)
  end
  local written = write_end()
  if type(written) == 'table' and (is_ahead(written.err) or is_foreign(written.err)) then
    -- Left over from lost data: nobody can tell what it is, or add to it.
    redis.call('DEL', stream)
    if sealed and there > 0 then
      redis.call('HSET', meta, 'next', '0', 'trimmed', '0')
      return { 'GAP', 0 }
    end
    write_end()
  end
  last(stream, keep)
end

if sealed then
  redis.call('HSET', meta, 'status', status, 'endedAt', at, 'fresh', fresh,
    'sealed', '1')
elseif status == 'failed' or status == 'timedout' then
  redis.call('HSET', meta, 'status', status, 'endedAt', at,
    'failures', record.failures + 1, 'report', report or '')
elseif status == 'private' then
  redis.call('HSET', meta, 'status', status, 'endedAt', at,
    'markEnd', now + keep * 1000)
else
  redis.call('HSET', meta, 'status', status, 'endedAt', at, 'fresh', fresh)
end

-- Who waits has joined: else there is nobody to be told, and no mark.
local watched, pushed, kind = record.joins > 0, nil, 'E'
if watched then
  redis.call('DEL', waiters)
end
if sealed then
  pushed, kind = index(count) .. proof, 'S'
elseif status == 'done' then
  if form == 'inline' then
    redis.call('SET', result, body, 'PX', keep)
    pushed, kind = body, 'B'
  elseif is(staged, 'string') then
    -- It keeps the time that it was staged for.
    redis.call('RENAME', staged, result)
    pushed = watched and redis.call('GETRANGE', result, 0, PUSH_MAX)
    if pushed and #pushed <= PUSH_MAX then
      kind = 'B'
    else
      pushed = nil
    end
  else
    -- Memory was too full for the record: whoever wants it finds it missing.
    redis.call('DEL', result)
  end
elseif status == 'abandoned' then
  kind = 'R'
end
if watched then
  push(publish, channels, meta, kind, record, status, pushed)
end
return { 'OK' }
