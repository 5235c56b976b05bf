-- An ordered line: positions in order of arrival, one at a time, the next woken by the one before it.
--
-- KEYS  1 state  hash  epoch, last (position given), done (cursor), failed (first failed position), and of that: failed_by (its
--                      family), failed_until (ms, 0: until the line is drained), carried ('1': it was one of an earlier epoch)
--       2 ids    hash  who -> its position in this epoch
--       3 line   hash  position -> JSON {who, wake, info, family, state, claim, alive (ms), due (ms), timeout (ms), head, heals}
--                      state: waiting | running | paused | void (given back)
--       4 index  zset  of all lines: raw key -> ms at which its head may be passed over, or a drained one is healed
-- ARGV  1 mode  2 the raw key  3 who  4 ttl ms of the line  then, by mode:
--       enter     5 wake  6 info  7 claim ('' to have a position and not begin)  8 poison timeout ms  9 lease ms of the claim
--                 10 '1': strict  11 family: what its retries name  12 the family it is the retry of, or ''
--       seen      5 epoch  6 position  7 claim  8 lease ms
--       pause     5 epoch  6 position  7 claim  8 ms for which nobody will show it
--       complete  5 epoch  6 position  7 claim  8 how: failed | passed | succeeded  9 ms for which the line stays failed by it
--                 even when drained, 0: only those behind it in this epoch
--       leave     5 claim, '' for none (a position is given back that is not running, or by that claim)
--       skip      5 position (whoever has it)  6 epoch it was seen in, '' for any
--       reset     5 epoch it was seen in, '' for any (the line starts afresh; who is in it arrives anew)
--       tend      (passes over what showed no sign of life)
-- Returns enter: {1, position, epoch, failed or 0, adopted 0|1} (2 for the 1 when strict and one has failed) or
--         {0, position, epoch, ahead, info of the head, ms to its end, 1 when the head is alive: its end moves}; of the
--         head itself, asking under another claim: 0 ahead, and the ms for which the claim that has its turn still may live
--         seen: 1, or 0 when the position is no longer its own.  Others: the wake name of the new head, or ''; of skip
--         and reset nil when there is no such position, or the line is another by now.
-- True  one position a `who` and epoch; the cursor passes a position only when it completed, was given back, was skipped,
--       or showed no sign of life for its timeout since its turn came. A drained line begins a new epoch, so that nobody of
--       an old one can move it. Who is behind a failed position is told so; in a new epoch too, until failed_until. The
--       retry of the one that failed is not, and heals the line when it succeeds.
-- Cost  O(1), and O(positions passed over).
local MODE, RAW, WHO, TTL = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local function number(name)
  return tonumber(redis.call('HGET', KEYS[1], name) or 0)
end

local function read(position)
  local packed = redis.call('HGET', KEYS[3], int(position))
  return packed and cjson.decode(packed)
end

local function write(position, entry)
  redis.call('HSET', KEYS[3], int(position), cjson.encode(entry))
end

local function drop(position, entry)
  redis.call('HDEL', KEYS[3], int(position))
  -- Who gave a place back, or was skipped, may have come again: its new place stays its own.
  if tonumber(redis.call('HGET', KEYS[2], entry.who)) == position then redis.call('HDEL', KEYS[2], entry.who) end
  redis.call('HSET', KEYS[1], 'done', int(position))
end

-- The first failed position that counts now, else 0.
local function failed()
  local is_over = redis.call('HGET', KEYS[1], 'carried') == '1' and number('failed_until') <= NOW
  return is_over and 0 or number('failed')
end

local function heal()
  redis.call('HDEL', KEYS[1], 'failed', 'failed_by', 'failed_until', 'carried')
end

-- As long as somebody may come again to it, whatever the ttl of the one who is here.
local function keep(at_least)
  local ttl = math.max(TTL, at_least or 0, number('failed_until') - NOW)
  for i = 1, 3 do
    if redis.call('PTTL', KEYS[i]) < ttl then redis.call('PEXPIRE', KEYS[i], ttl) end
  end
  redis.call('PEXPIRE', KEYS[4], INDEX_KEEP)
end

-- Moves the cursor over what is given back or dead; returns the wake of a head whose turn has just come.
local function advance()
  while true do
    local position = number('done') + 1
    local entry = read(position)
    if not entry then
      if number('failed_until') > NOW then
        redis.call('ZADD', KEYS[4], int(number('failed_until')), RAW)
      else
        redis.call('ZREM', KEYS[4], RAW)
      end
      return ''
    end
    local wake = ''
    if not entry.head then
      entry.head, entry.due = true, math.max(entry.due, NOW + entry.timeout)
      write(position, entry)
      wake = entry.state == 'waiting' and entry.wake or ''
    end
    if entry.state ~= 'void' and entry.due > NOW then
      redis.call('ZADD', KEYS[4], int(entry.due), RAW)
      return wake
    end
    drop(position, entry)
  end
end

-- Later than the last line's by what its positions may have used of the fencing tokens: 1,000 in each ms.
local function next_epoch()
  return math.max(number('epoch') + 1 + math.floor(number('last') / 1000), NOW)
end

local function own()
  local position = tonumber(ARGV[6])
  if number('epoch') ~= tonumber(ARGV[5]) then return nil end
  local entry = read(position)
  if not entry or entry.who ~= WHO or entry.claim ~= ARGV[7] then return nil end
  return position, entry
end

if MODE == 'enter' then
  advance()
  if number('last') == number('done') then
    local epoch = next_epoch()
    redis.call('DEL', KEYS[2], KEYS[3])
    redis.call('HSET', KEYS[1], 'epoch', int(epoch), 'last', 0, 'done', 0)
    if number('failed_until') > NOW then
      redis.call('HSET', KEYS[1], 'carried', 1)
    else
      heal()
    end
  end
  local position = tonumber(redis.call('HGET', KEYS[2], WHO))
  local entry = position and read(position)
  if not entry then
    position = redis.call('HINCRBY', KEYS[1], 'last', 1)
    redis.call('HSET', KEYS[2], WHO, int(position))
    entry = { who = WHO, state = 'waiting', claim = '', alive = 0, due = 0 }
  end
  entry.wake, entry.info, entry.timeout, entry.family = ARGV[5], ARGV[6], tonumber(ARGV[8]), ARGV[11]
  entry.due = math.max(entry.due, NOW + entry.timeout)
  write(position, entry)
  advance()
  entry = read(position)
  keep()
  local done = number('done')
  local is_anothers = entry.state == 'running' and entry.claim ~= ARGV[7] and entry.alive > NOW
  if position == done + 1 and not is_anothers and ARGV[7] ~= '' then
    local adopted = entry.state == 'paused' and 1 or 0
    entry.state, entry.claim, entry.alive = 'running', ARGV[7], NOW + tonumber(ARGV[9])
    local first = failed()
    if first > 0 and ARGV[12] ~= '' and redis.call('HGET', KEYS[1], 'failed_by') == ARGV[12] then
      entry.heals, first = true, 0
    end
    write(position, entry)
    local way = ARGV[10] == '1' and first > 0 and 2 or 1
    return { way, int(position), int(number('epoch')), int(first), adopted }
  end
  local head = read(done + 1)
  local left = is_anothers and entry.alive - NOW or head.due - NOW
  local is_alive = position ~= done + 1 and head.state == 'running' and head.alive > NOW
  return { 0, int(position), int(number('epoch')), int(position - done - 1), head.info, int(math.max(left, 0)),
    is_alive and 1 or 0 }
end

if MODE == 'seen' then
  local position, entry = own()
  if not position then return 0 end
  entry.alive, entry.due = NOW + tonumber(ARGV[8]), math.max(entry.due, NOW + entry.timeout)
  write(position, entry)
  if position == number('done') + 1 then redis.call('ZADD', KEYS[4], int(entry.due), RAW) end
  keep()
  return 1
end

if MODE == 'pause' then
  local position, entry = own()
  if position then
    entry.state, entry.claim, entry.alive = 'paused', '', 0
    entry.due = NOW + tonumber(ARGV[8]) + entry.timeout
    write(position, entry)
    if position == number('done') + 1 then redis.call('ZADD', KEYS[4], int(entry.due), RAW) end
    keep(entry.due - NOW)
  end
  return ''
end

if MODE == 'complete' then
  local position, entry = own()
  if position and position == number('done') + 1 then
    if ARGV[8] == 'failed' and (failed() == 0 or entry.heals) then
      local lasts = tonumber(ARGV[9])
      redis.call('HSET', KEYS[1], 'failed', int(position), 'failed_by', entry.family or '', 'failed_until',
        lasts > 0 and int(NOW + lasts) or 0, 'carried', 0)
    elseif ARGV[8] == 'succeeded' and entry.heals then
      heal()
    end
    drop(position, entry)
    keep()
    return advance()
  end
  return ''
end

local function is_another(seen)
  return seen and seen ~= '' and tonumber(seen) ~= number('epoch')
end

if MODE == 'leave' or MODE == 'skip' then
  if MODE == 'skip' and is_another(ARGV[6]) then return false end
  local position = MODE == 'skip' and tonumber(ARGV[5]) or tonumber(redis.call('HGET', KEYS[2], WHO))
  local entry = position and read(position)
  if entry and (MODE == 'skip' or entry.state ~= 'running' or entry.claim == ARGV[5]) then
    redis.call('HDEL', KEYS[2], entry.who)
    entry.state, entry.claim = 'void', ''
    write(position, entry)
    keep()
    return advance()
  end
  if MODE == 'skip' then return false end
  return ''
end

if MODE == 'reset' then
  if is_another(ARGV[5]) then return false end
  redis.call('HSET', KEYS[1], 'epoch', int(next_epoch()), 'last', 0, 'done', 0)
  heal()
  redis.call('DEL', KEYS[2], KEYS[3])
  redis.call('ZREM', KEYS[4], RAW)
  keep()
  return ''
end

return advance()
