"""The Lua scripts of bot.platform.storage.work_queue: KEYS[1] is the queue's prefix, ARGV[1] the item."""

MAX_BLOCK_SECONDS = 2.0  # in BLPOP; redis-py gives up on a silent socket after 5

_BLOCK = f"local BLOCK = {MAX_BLOCK_SECONDS * 1000:g}"
_COMMON = (
    _BLOCK
    + """
local P, item = KEYS[1], ARGV[1]
local ready, delayed, running, again = P .. ':ready', P .. ':delayed', P .. ':running', P .. ':again'
local failures, wake, hurried = P .. ':failures', P .. ':wake', P .. ':hurried'
local starts, quarantine, reasons = P .. ':starts', P .. ':quarantine', P .. ':reasons'
local left = P .. ':left'
local call, time = redis.call, redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000 -- milliseconds

local function lease_key(name) return P .. ':lease:' .. name end
local function holds(token) return call('GET', lease_key(item)) == token end
local function ring() if call('RPUSH', wake, 1) > 1 then call('LPOP', wake) end end

local function forget_starts(name)
  call('HDEL', starts, name)
  call('HDEL', reasons, name)
end

local function make_ready(name, since)
  call('ZREM', delayed, name)
  if call('ZADD', ready, 'NX', since, name) == 1 then ring() end
end

-- No worker waits longer than `BLOCK`, so none is woken for a later item; nor if one waits no longer anyway.
local function schedule(due, is_awaited)
  if due <= now then return make_ready(item, due) end
  call('ZADD', delayed, 'LT', due, item)
  if not is_awaited and due < now + BLOCK and call('ZRANGE', delayed, 0, 0)[1] == item then ring() end
end

-- Ends the running item's lease, and schedules it for the earlier of `due` and the time for which it was
-- added.
local function finish(due, is_awaited)
  local added = call('ZSCORE', again, item)
  if added then due = math.min(added, due or math.huge) end
  call('DEL', lease_key(item))
  call('ZREM', running, item)
  if added then call('ZREM', again, item) end
  if due then schedule(due, is_awaited and not added) end
  return due
end
"""
)

_ADDING = """
local function add(due)
  if call('ZSCORE', running, item) then call('ZADD', again, 'LT', due, item)
  elseif due <= now or not call('ZSCORE', ready, item) then schedule(due) end
end
"""

# For scripts that store something and queue its item in one step: a block for which KEYS[1] is the queue's
# prefix, and ARGV[1] and ARGV[2] are the item and the seconds until it is ready.
ADD = f"{_COMMON} {_ADDING} add(now + ARGV[2] * 1000)"

# ARGV has for each wake its item, when this worker last started it, and the resourceVersions of the changes,
# by kind: it is already awake if it was woken for these or later versions, after that start.
WAKE = f"""
{_COMMON}
{_ADDING}
for n = 1, #ARGV, 3 do
  item = ARGV[n]
  local key, started, is_new = P .. ':woken:' .. item, tonumber(ARGV[n + 1]), false
  local woken = cjson.decode(call('GET', key) or '{{}}') -- texts: cjson rounds numbers to 14 digits
  for kind, version in pairs(cjson.decode(ARGV[n + 2])) do
    local known, at = unpack(woken[kind] or {{}})
    if not known or tonumber(version) > tonumber(known) or started >= tonumber(at) then
      is_new = true
      if tonumber(version) < math.huge then woken[kind] = {{version, string.format('%.3f', now)}} end
    end
  end
  if is_new then
    add(now)
    call('SET', key, cjson.encode(woken), 'PX', 60000)
  end
end
"""

RETRY_QUARANTINED = f"""
{_COMMON}
{_ADDING}
if call('HDEL', quarantine, item) == 0 then return 0 end
forget_starts(item)
call('HDEL', failures, item)
call('HDEL', left, item)
if tonumber(ARGV[2]) > 0 then call('HSET', starts, item, ARGV[2]) end
add(now)
return 1
"""

# `take` returns {item, failures, starts, why it is quarantined or '', now, milliseconds since it was due,
# seconds until it should be called again}; without an item, only the last, as text. A start is counted when
# it has no end: when its lease expires, by RELEASE, and by a permanent error.
_TAKING = """
local function suspect_runs()
  for _, name in ipairs(call('ZRANGE', running, 0, -1)) do
    if tonumber(call('HGET', starts, name) or 0) > 1 then return true end
  end
end

-- Calls `collect` with the members of `key` that are due; returns when the next one is.
local function each_due(key, collect)
  for _ = 1, 2 do
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    if not first then return math.huge end
    if tonumber(first) > now then return tonumber(first) end
    for _, name in ipairs(call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, 100)) do collect(name) end
  end
  return now
end

local soonest -- when more will be due
local function pause() return tostring(math.max(soonest - now, 0) / 1000) end

local function collect_due()
  local expiring = each_due(running, function(name)
    call('ZREM', running, name)
    call('ZREM', again, name)
    call('DEL', lease_key(name))
    call('HINCRBY', starts, name, 1)
    make_ready(name, now)
  end)
  soonest = math.min(expiring, each_due(delayed, function(name)
    make_ready(name, call('ZSCORE', delayed, name))
  end))
end

-- Pops an item that another worker left, and this one hasn't.
local function pop_left(worker)
  local found = call('HSCAN', left, 0, 'COUNT', 100)[2]
  for n = 1, #found, 2 do
    local is_new = not string.find(found[n + 1], worker, 1, true)
    if is_new and call('ZREM', delayed, found[n]) == 1 then return {found[n], now} end
  end
end

-- Pops the first item that can run; returns it, its starts without an end, why it is quarantined, and when it
-- was due. One whose quarantine was reported doesn't run until `retry`.
local function pop(worker, most, has_odd)
  while true do
    local popped = has_odd and pop_left(worker) or call('ZPOPMIN', ready)
    local name = popped[1]
    if not name then return end
    if not has_odd then return name, 0, false, popped[2] end
    local count, why = tonumber(call('HGET', starts, name) or 0), call('HGET', quarantine, name)
    local reported = why and count == 0
    if not reported and count <= most + 2 then
      if count < 2 or not suspect_runs() then return name, count, why, popped[2] end
      call('ZADD', delayed, now + 1000, name)
    end
    call('HDEL', left, name)
  end
end

local function take(worker, token, lease, most)
  collect_due()
  local has_odd = call('EXISTS', failures, left, quarantine, starts) > 0 -- mostly, there is none
  local name, count, why, due = pop(worker, most, has_odd)
  if name then
    local there = call('EXISTS', ready, wake)
    if there == 2 or there == 1 and call('EXISTS', ready) == 1 then
      if there == 1 then call('RPUSH', wake, 1) end
      soonest = now
    elseif there == 1 then call('DEL', wake) end
    call('ZADD', running, now + lease, name)
    call('SET', lease_key(name), token, 'PX', math.ceil(lease))
    if count >= most and not why then
      why = string.format('%.0f ', now) .. (call('HGET', reasons, name) or '')
      call('HSET', quarantine, name, why)
    end
    local at, waited = string.format('%.3f', now), string.format('%.3f', now - due)
    local failed = has_odd and call('HGET', failures, name) or 0
    return {name, tonumber(failed), count, why or '', at, waited, pause()}
  end
  return pause()
end
"""

TAKE = f"{_COMMON} {_TAKING} return take(ARGV[2], ARGV[3], tonumber(ARGV[4]) * 1000, tonumber(ARGV[5]))"

HEARTBEAT = f"""
{_COMMON}
if not holds(ARGV[2]) then return 0 end
call('SET', lease_key(item), ARGV[2], 'PX', math.ceil(ARGV[3] * 1000))
call('ZADD', running, now + ARGV[3] * 1000, item)
return 1
"""

# ARGV[4] is '0' unless the item has failed, was left, had starts without an end, or is quarantined.
# ARGV[5] is '1' if a worker waits in BLPOP no longer than the item is delayed.
DONE = f"""
{_COMMON}
if holds(ARGV[2]) then
  if ARGV[4] ~= '0' then
    call('HDEL', failures, item)
    call('HDEL', left, item)
    forget_starts(item)
  end
  finish(ARGV[3] ~= '' and now + ARGV[3] * 1000, ARGV[5] == '1')
end
"""

DONE_AND_TAKE = f"""
{DONE}
{_TAKING}
if call('EXISTS', ready) == 0 then return false end
return take(ARGV[6], ARGV[7], tonumber(ARGV[8]) * 1000, tonumber(ARGV[9]))
"""

RELEASE = f"""
{_COMMON}
if holds(ARGV[2]) then
  call('HDEL', left, item)
  call('HINCRBY', starts, item, 1)
  finish(now)
end
"""

# Makes the item ready that was taken with a token, of which the worker doesn't know.
UNDO = f"""
{_COMMON}
for _, name in ipairs(call('ZRANGE', running, 0, -1)) do
  item = name
  if holds(ARGV[2]) then return finish(now) end
end
"""

_FAILING = """
-- Starts of a quarantined item are forgotten once that is reported.
local function end_start()
  if call('HEXISTS', quarantine, item) == 0 then forget_starts(item) end
end

-- Counts a failure; returns the milliseconds until the item is retried.
local function back_off(base, factor, longest, share)
  local count = call('HINCRBY', failures, item, 1)
  return math.min(base * factor ^ (count - 1), longest) * share * 1000
end
"""

FAIL = f"""
{_COMMON}
{_FAILING}
if not holds(ARGV[2]) then return '0' end
if ARGV[7] == '' then end_start()
else
  call('HINCRBY', starts, item, 1)
  call('HSET', reasons, item, ARGV[7])
end
local delay = back_off(ARGV[3], ARGV[4], ARGV[5], ARGV[6])
if tonumber(ARGV[8]) < tonumber(call('GET', hurried) or 0) then delay = 0 end
call('HDEL', left, item)
local due = finish(now + delay)
return tostring(math.max(due - now, 0) / 1000)
"""

# `left` has for each item that a worker left: when all workers get it again (milliseconds), and who left it.
# Leaving it again before then counts no failure: the delay must not grow with each older worker and wake.
LEAVE = f"""
{_COMMON}
{_FAILING}
if not holds(ARGV[2]) then return '0' end
end_start()
local known = call('HGET', left, item) or '0'
local due = tonumber(string.match(known, '%S+'))
if due <= now then
  due = now + back_off(ARGV[3], ARGV[4], ARGV[5], ARGV[6])
  known = string.format('%.0f', due)
end
if not string.find(known, ARGV[7], 1, true) then known = known .. ' ' .. ARGV[7] end
due = finish(due)
call('HSET', left, item, known)
ring()
return tostring(math.max(due - now, 0) / 1000)
"""

HURRY = f"""
{_COMMON}
for _, name in ipairs(call('HKEYS', failures)) do
  if call('ZSCORE', delayed, name) then make_ready(name, now) end
end
call('SET', hurried, now, 'PX', ARGV[1] * 1000)
"""

ALL = (ADD, WAKE, TAKE, UNDO, HEARTBEAT, DONE, DONE_AND_TAKE, RELEASE, FAIL, LEAVE, HURRY, RETRY_QUARANTINED)
