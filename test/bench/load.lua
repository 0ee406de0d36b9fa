-- The load, for wrk with one thread: every request creates a plant of its own.
--
--   wrk -t1 -d4s -s load.lua http://127.0.0.1:PORT/plants -- TOKEN RUN 3
--
-- sends plants for 3 of the 4 seconds. The rest is for the server to accept the
-- connections before, and to answer what is in flight afterwards. Ids are RUN
-- followed by nine digits that count up; no two requests share one. The request
-- is built once and cut where the id belongs.

local ffi = require("ffi")

ffi.cdef [[
  struct timespec { long seconds; long nanoseconds; };
  int clock_gettime(int clock, struct timespec *time);
  int usleep(unsigned int microseconds);
]]

local CLOCK_MONOTONIC = 1
local FIRST = 100000000

-- Microseconds. Node accepts one connection a turn of its loop (libuv 1.46).
-- Under load the last of 1,024 would wait for seconds, and the 99th percentile
-- would be the time of their first request.
local ACCEPTING = 250000

-- What a connection sends when time is up: the beginning of a request, never
-- finished. It gets no answer and so no place in the figures, and all plants
-- sent are answered when wrk stops: what was stored can be counted exactly.
local NOTHING = "P"

local head, tail, seconds, thread
local deadline = math.huge
local time = ffi.new("struct timespec")

-- wrk asks for one request to look at before it sends any; it is not counted.
sent = -1

local function now()
  ffi.C.clock_gettime(CLOCK_MONOTONIC, time)
  return tonumber(time.seconds) + tonumber(time.nanoseconds) / 1e9
end

function setup(only_thread)
  thread = only_thread
end

function init(arguments)
  local token, run = arguments[1], arguments[2]
  seconds = tonumber(arguments[3])
  local body = '{"id":' .. run .. FIRST .. ',"name":"Boston fern","tag":"indoor"}'
  local headers = { ["Authorization"] = "Bearer " .. token, ["Content-Type"] = "application/json" }
  local request = wrk.format("POST", nil, headers, body)
  local before, after = request:find(FIRST, 1, true)
  head, tail = request:sub(1, before - 1), request:sub(after + 1)
end

function request()
  if sent == 0 then
    ffi.C.usleep(ACCEPTING)
    deadline = now() + seconds
  elseif now() > deadline then
    return NOTHING
  end
  sent = sent + 1
  return head .. (FIRST + sent) .. tail
end

-- wrk counts statuses above 399 as errors; no server here answers with another
-- than 200 below that, so the rest are the plants answered 200. Microseconds.
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"sent":%d,"answered":%d,"other":%d,"p50":%d,"p99":%d}\n',
    thread:get("sent"),
    summary.requests - errors.status,
    errors.status + errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50),
    latency:percentile(99)
  ))
end
