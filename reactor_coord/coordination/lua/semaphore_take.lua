-- Takes a slot; refused, stands in line in the same step.
--
-- ARGV  as in arrival.lua, 14 the raw key, and 15 the limit, which comes with every take
-- Returns {1, {how, fence, since, granted_at, released_by}, wake name of each who was granted a slot beside...}
--      or as take.lua: {0, 1, its place or 0, number waiting, {a holder}, wakes, {1}, ms to the first lapse,
--          1 when the line was too long to join, the last fence given, slots in use}
-- True  a slot is mine when held by my owner under my claim, parked by my owner, granted to my owner, or free: then it is a
--       new one. A tree has one slot, however often it nests: what else it has parked goes back. With as many slots in use
--       as the limit nobody enters, not even by a grant made under a higher one. A raised limit is handed out at once.
--       The same token counts once. A lease is never shortened.
-- Cost  O(log slots + log line).
local r = resource(1, ARGV[14])
local LIMIT = tonumber(ARGV[15])
local FROM = 'take:' .. TOKEN
local wakes = {}

clear_lapsed(r)
local slots = slots_of(r, OWNER)
local found = {}
for i, slot in ipairs(slots) do
  if slot.state ~= 'held' or slot.claim == CLAIM then found[slot.state] = found[slot.state] or i end
end

-- My grant was made under a higher limit: its waiter goes back to its place.
if found.granted and not (found.held or found.parked) and in_use() > LIMIT then
  local id = slots[found.granted].waiter
  local waiter = read_waiter(r, id)
  if waiter then
    waiter.lapses = waiter.lapses - 1
    stand_in_line(r, id, waiter)
  end
  free_slot(r, OWNER, slots, found.granted)
  found = {}
end

local function own(slot, how, lease_ms)
  slot.state, slot.claim, slot.info, slot.tokens = 'held', CLAIM, ARGV[12], { [TOKEN] = how }
  slot.waiter, slot.wake, slot.from = nil, nil, nil
  slot.limit = LIMIT -- for people who look
  lease(OWNER, slot, NOW + lease_ms)
end

local mine, answer = found.held or found.parked or found.granted, nil
if found.held then
  local slot = slots[mine]
  local how = slot.tokens[TOKEN]
  if how then
    add_granted_before(r, FROM, wakes) -- counted before: the reply of this very request was lost
  else
    how = 'reentered'
    slot.tokens[TOKEN] = how
  end
  lease(OWNER, slot, NOW + math.max(lease_left(OWNER, slot), TTL))
  answer = { how, slot.fence, slot.since, '', '' }
  if how == 'granted' then answer[4], answer[5] = slot.granted_at, slot.released_by end
elseif found.parked then
  own(slots[mine], 'parked', TTL)
  answer = { 'parked', slots[mine].fence, slots[mine].since, '', '' }
elseif found.granted then
  local slot = slots[mine]
  end_wait(r, OWNER, slot.waiter)
  slot.since = int(NOW)
  own(slot, 'granted', TTL)
  answer = { 'granted', slot.fence, slot.since, slot.granted_at, slot.released_by }
elseif in_use() < LIMIT then
  local slot = { fence = next_fence(r.fence), since = int(NOW) }
  mine = #slots + 1
  slots[mine] = slot
  own(slot, 'free', TTL)
  answer = { 'free', slot.fence, slot.since, '', '' }
end

if answer then
  write_slots(r, OWNER, slots)
  for i = #slots, 1, -1 do
    if i ~= mine and (slots[i].state == 'parked' or slots[i].waiter == ID) then free_slot(r, OWNER, slots, i) end
  end
  if ID ~= '' then end_wait(r, OWNER, ID) end
  if ARGV[9] ~= '' then redis.call('DEL', ARGV[9]) end
  if redis.call('EXISTS', r.line) == 1 then
    redis.call('HSET', r.meta, 'limit', LIMIT)
    hand_out(r, LIMIT, FROM, by_whom(), wakes)
  end
  settle(r)
  return { 1, answer, unpack(wakes) }
end

local full = is_full(r)
if MODE == 'join' and not full then
  join(r, true)
elseif MODE == 'last' and ID ~= '' then
  end_wait(r, OWNER, ID)
end
if redis.call('EXISTS', r.line) == 1 then redis.call('HSET', r.meta, 'limit', LIMIT) end
local look_in = settle(r)

local holder = { false }
local soonest = redis.call('ZRANGE', LEASES, 0, 0)[1]
if soonest then
  local fence, owner = string.match(soonest, '^(%d+)|(.*)$')
  for _, slot in ipairs(slots_of(r, owner)) do
    if slot.fence == fence then
      local count = 0
      for _ in pairs(slot.tokens) do count = count + 1 end
      holder = { owner, slot.claim, slot.state, fence, slot.since, int(lease_left(owner, slot)), slot.info, int(count) }
    end
  end
end
local rank = ID ~= '' and redis.call('ZRANK', r.line, ID)
return { 0, 1, rank and rank + 1 or 0, redis.call('ZCARD', r.line), holder, wakes, { 1 }, look_in, full and 1 or 0,
  int(tonumber(redis.call('GET', r.fence) or nil) or 0), in_use() }
