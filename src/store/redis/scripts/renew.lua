-- The rest of it: all that is not as it mostly is.
local token, flight, lease = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local record = read(meta)
if owned(record, token, flight) then
  redis.call('PEXPIRE', meta, 2 * lease)
  redis.call('HSET', meta, 'heartbeatAt', at, 'lease', lease)
  -- While a cluster moves the slot, it may give the record alone: then somebody may wait.
  local waiting = not waiters and 1 or live(waiters)
  if waiters and waiting > 0 then
    last(waiters, 2 * lease)
  end
  if stream and record.next > 0 then
    last(stream, 2 * lease)
  end
  return { 'OK', waiting }
elseif ended_by(record, token, flight) then
  return { 'OVER' }
end
return lost(record, token, flight)
