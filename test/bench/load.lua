-- The load, for wrk with one thread. Every request creates a different plant.
--
--   wrk -t1 -c64 -d4s -s load.lua http://127.0.0.1:PORT/plants -- TOKEN RUN 3 64 0.25
--
-- waits 0.25 s for the server to accept the 64 connections, then sends plants
-- for 3 s. The rest of the 4 s is for the responses still pending. Each id is RUN
-- followed by nine digits that count up, so no id is sent twice. The request is
-- built once and split at the id.
--
-- Prints the line "begin" before the first plant, "end" after the last response
-- and a summary in JSON when wrk stops.

local ffi = require("ffi")

ffi.cdef [[
  struct timespec { long seconds; long nanoseconds; };
  int clock_gettime(int clock, struct timespec *time);
  int usleep(unsigned int microseconds);
]]

local CLOCK_MONOTONIC = 1
local FIRST = 100000000

-- What a connection sends after the deadline: the beginning of a request that is
-- never finished. It gets no response and is not counted, and every plant sent
-- before it has its response when wrk stops: the number stored is known exactly.
local NOTHING = "P"

local head, tail, seconds, connections, accepting, thread
local deadline = math.huge
local idle = 0
local time = ffi.new("struct timespec")

-- wrk asks for one request before it opens connections; that one is not sent.
sent = -1

local function now()
  ffi.C.clock_gettime(CLOCK_MONOTONIC, time)
  return tonumber(time.seconds) + tonumber(time.nanoseconds) / 1e9
end

local function say(line)
  io.write(line, "\n")
  io.flush()
end

function setup(only_thread)
  thread = only_thread
end

function init(arguments)
  local token, run = arguments[1], arguments[2]
  seconds, connections = tonumber(arguments[3]), tonumber(arguments[4])
  accepting = tonumber(arguments[5])
  local body = '{"id":' .. run .. FIRST .. ',"name":"Boston fern","tag":"indoor"}'
  local headers = { ["Authorization"] = "Bearer " .. token, ["Content-Type"] = "application/json" }
  local request = wrk.format("POST", nil, headers, body)
  local before, after = request:find(FIRST, 1, true)
  head, tail = request:sub(1, before - 1), request:sub(after + 1)
end

function request()
  if sent == 0 then
    ffi.C.usleep(accepting * 1e6)
    say("begin")
    deadline = now() + seconds
  elseif now() > deadline then
    idle = idle + 1
    if idle == connections then say("end") end
    return NOTHING
  end
  sent = sent + 1
  return head .. (FIRST + sent) .. tail
end

-- wrk counts statuses above 399 as errors. No server here uses a status below
-- that other than 200, so all other responses are plants answered 200. The
-- latencies are in microseconds.
function done(summary, latency)
  local errors = summary.errors
  say(string.format(
    '{"sent":%d,"answered":%d,"other":%d,"p50":%d,"p99":%d}',
    thread:get("sent"),
    summary.requests - errors.status,
    errors.status + errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50),
    latency:percentile(99)
  ))
end
