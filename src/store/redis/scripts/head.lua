-- What every step begins with. TIME is read once.
--
-- Most calls end before what is defined for the others: what a script makes, be it a
-- table or a text, costs as much as a command does, and to write a number out costs more
-- than that. So times stay the texts that they came as.
local FORMAT = '1'
local clock = redis.call('TIME')
local at = #clock[2] == 6 and clock[1] .. clock[2]
  or clock[1] .. string.sub('00000' .. clock[2], -6)
