# Prints where the time of scripts/test.sh went: for each lane its tests, its seconds on the clock, and its seconds of a processor, then the
# ten slowest tests. It reads, in this order, what test.sh wrote: checks, began.LANE, times.LANE, total.MODE, runs, and MODE.json, where
# MODE is race or plain.

function seconds(clock,   part) { split(clock, part, ":"); return part[1] * 3600 + part[2] * 60 + part[3] }
# used adds the durations of a line of times, such as 1m2.5s.
function used(   i, part, sum) {
    for (i = 1; i <= NF; i++) { split($i, part, /[ms]/); sum += part[1] * 60 + part[2] }
    return sum
}
function text(name) { return match($0, "\"" name "\":\"[^\"]*") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) : "" }
function elapsed() { return match($0, /"Elapsed":[0-9.e-]+/) ? substr($0, RSTART + 10, RLENGTH - 10) + 0 : 0 }
function row(name, ran, failed, skipped, wall, cpu) { printf "%-16s %7s %7s %7s %7s %7s\n", name, ran, failed, skipped, wall, cpu }
function whole(n) { return sprintf("%.0f", n) }
# slow inserts a test into the ten slowest.
function slow(s, what,   i) {
    if (s <= took[10] + 0) return
    for (i = 10; i > 1 && s > took[i - 1] + 0; i--) { took[i] = took[i - 1]; who[i] = who[i - 1] }
    took[i] = s
    who[i] = what
}

FNR == 1 { base = FILENAME; sub(/.*\//, "", base); kind = name = base; sub(/\..*/, "", kind); sub(/[^.]*\./, "", name); if (name == "json") mode = kind }
base == "checks" && /m/ { checks += FNR <= 2 ? -used() : used(); next }
base == "checks" { wall["checks"] = $1; next }
kind == "began" { first[name] = seconds($1); next }
kind == "times" { cpu[name] += used(); tests[name == "race" ? "race" : "plain"] += used(); next }
kind == "total" { build[name] += used(); next }
base == "runs" { laneOf[$1 == "race" ? "race" : "plain", $2] = $1; next }
/^\{"Time":"[^"]*","Action":"(pass|fail|skip)"/ {
    package = text("Package")
    lane = laneOf[mode, package]
    now = substr(text("Time"), 12, 12)
    last = seconds(now) - first[lane]
    if (last < 0) last += 86400
    wall[lane] = last
    test = text("Test")
    if (test == "") next
    count[lane]++
    count[lane, text("Action")]++
    if (index(test, "/") == 0) { sub(/.*tollhq\/toll\/?/, "", package); slow(elapsed(), lane " " package " " test) }
}
END {
    row("", "tests", "failed", "skipped", "wall s", "CPU s")
    if (wall["checks"] > 0) row("checks", "", "", "", wall["checks"], whole(checks))
    n = split("race plain stores interop", lanes, " ")
    for (i = 1; i <= n; i++) if (lanes[i] in cpu) {
        lane = lanes[i]
        row(lane, count[lane] + 0, count[lane, "fail"] + 0, count[lane, "skip"] + 0, whole(wall[lane]), whole(cpu[lane]))
    }
    if ("race" in tests) row("building (race)", "", "", "", "", whole(build["race"] - tests["race"]))
    if ("plain" in tests) row("building", "", "", "", "", whole(build["plain"] - tests["plain"]))
    print "the slowest tests:"
    for (i = 1; i <= 10 && took[i] > 0; i++) printf "%8.1f s  %s\n", took[i], who[i]
}
