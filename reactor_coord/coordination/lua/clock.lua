-- What every script begins with: the server's time, and fences.
--
-- Instants are ms of the server's clock. A fence is its microseconds, or one more than the last: below 2^53, so exact as
-- a Lua number, and growing when the counter was lost as well as when the clock went back.
local KEEP = 86400000         -- ms a line and a fence are kept after the last thing that happened to them
local INDEX_KEEP = 2592000000 -- ms the index is kept after the last write: more than any park's horizon

local clock = redis.call('TIME')
local NOW_US = clock[1] * 1000000 + clock[2]
local NOW = math.floor(NOW_US / 1000)

local function int(number)
  return string.format('%.0f', number)
end

local function next_fence(name)
  local fence = int(NOW_US)
  local last = tonumber(redis.call('SET', name, fence, 'PX', KEEP, 'GET') or nil)
  if last and last >= NOW_US then
    fence = int(last + 1)
    redis.call('SET', name, fence, 'PX', KEEP)
  end
  return fence
end
