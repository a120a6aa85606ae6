//! The scripts that `sh` runs on a host. They come on standard input: others see no more than
//! `sh -s` of them.
//!
//! A pilot has a directory on its host, of mode 0700, in `~/.isthmus-pilots/HOST`, where HOST is the
//! host's name in the list: hosts may share a home. Files in it: `started` (the pilot's number, the
//! machine's boot, its watcher's id and when that began, the id of its process group and when the
//! group's first process began), `status` once it has ended, `log`, `script`, `watch`, `secret`.

use base64::prelude::{BASE64_STANDARD, Engine as _};

use crate::Word;

/// The longest limit, ten years, in place of none: not every `timeout` has "no limit".
const NO_LIMIT: u64 = 315_360_000;

/// What every script begins with.
fn begin(host: &Word) -> String {
    format!("umask 077; base=\"$HOME/.isthmus-pilots/{host}\"\n{HELPERS}")
}

/// `began ID`: when a process began, in clock ticks since the machine did (proc(5)), which tells it
/// from a later one with its id; nothing if it has ended. `watched` and `runs`: whether a pilot's
/// watcher, and its script, are there.
const HELPERS: &str = r#"
began() { sed -n 's/.*) \([^ZX] .*\)/\1/p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
boot=$(cat /proc/sys/kernel/random/boot_id)
started() { read -r number was watcher watching group running <"$1/started" 2>/dev/null; }
is() { [ "$was" = "$boot" ] && [ -n "$2" ] && [ "$(began "$1")" = "$2" ]; }
watched() { is "$watcher" "$watching"; }
runs() { is "$group" "$running"; }
"#;

const LOOK: &str = r#"
echo "isthmus-host $(getconf _NPROCESSORS_ONLN) $(awk '/^MemTotal:/ { print $2 }' /proc/meminfo)"
cd "$base" 2>/dev/null || exit 0
for pilot in */; do
    started "$pilot" || continue
    if watched; then echo "pilot $number running"
    elif [ -f "$pilot/status" ]; then echo "pilot $number $(cat "$pilot/status")"
    else echo "pilot $number lost"; fi
done
exit 0
"#;

/// Watches a pilot. Its process group is its own; what the script leaves behind in it ends with it.
const WATCH: &str = r#"
cd "$dir" || exit 1
from=$(date +%s)
timeout -k 10 "$limit" sh "$dir/script" &
group=$!
echo "$number $boot $$ $(began $$) $group $(began "$group")" >started.new && mv started.new started
wait "$group"; status=$?
kill -KILL "-$group" 2>/dev/null
if [ $(($(date +%s) - from)) -ge "$limit" ]; then echo late >status.new; else echo "ended $status" >status.new; fi
mv status.new status
"#;

const START: &str = r#"
mkdir -p "$base" && mkdir "$dir" || exit 1
given "$script_text" >"$dir/script" && given "$secret_text" >"$dir/secret" && given "$watch_text" >"$dir/watch" || exit 1
setsid sh "$dir/watch" </dev/null >"$dir/log" 2>&1 &
tries=0
until [ -f "$dir/started" ]; do
    tries=$((tries + 1)); [ "$tries" -le 100 ] || exit 1
    sleep 0.1
done
"#;

/// Ends a pilot, shows the end of its log, and removes it.
const STOP: &str = r#"
[ -d "$dir" ] || exit 0
if started "$dir"; then
    runs && kill -TERM "-$group" 2>/dev/null
    tries=0
    while { runs || watched; } && [ "$tries" -lt 50 ]; do tries=$((tries + 1)); sleep 0.1; done
    runs && kill -KILL "-$group" 2>/dev/null
    while { runs || watched; } && [ "$tries" -lt 100 ]; do tries=$((tries + 1)); sleep 0.1; done
    if runs || watched; then echo "process group $group doesn't end" >&2; exit 1; fi
fi
tail -c 8192 "$dir/log" 2>/dev/null
rm -rf "$dir"
"#;

/// Looks at a host: what it is, and the pilots there.
pub(crate) fn look(host: &Word) -> String {
    begin(host) + LOOK
}

/// Starts a pilot. `script` is what [`of_node`](crate::script::of_node) gives for the path that
/// [`secret_path`] names.
pub(crate) fn start(
    host: &Word,
    name: &Word,
    number: u64,
    limit: Option<u64>,
    script: &str,
    secret: &[u8],
) -> String {
    let limit = limit.unwrap_or(NO_LIMIT).clamp(1, NO_LIMIT);
    let watch = format!("{}dir=\"$base/{name}\"; number={number}; limit={limit}\n{WATCH}", begin(host));
    let mut all = begin(host) + &format!("dir=\"$base/{name}\"\n");
    // A variable is no argument of a process: `printf` is the shell's own, and so is what it writes.
    all += "given() { base64 -d <<EOF\n$1\nEOF\n}\n";
    for (variable, bytes) in
        [("script_text", script.as_bytes()), ("secret_text", secret), ("watch_text", watch.as_bytes())]
    {
        all += &format!("{variable}={}\n", BASE64_STANDARD.encode(bytes));
    }
    all + START
}

/// Ends a pilot if it runs, writes the end of its log, and removes its files.
pub(crate) fn stop(host: &Word, name: &Word) -> String {
    begin(host) + &format!("dir=\"$base/{name}\"\n{STOP}")
}

/// How a pilot's script names its secret, for a shell.
pub(crate) fn secret_path(host: &Word, name: &Word) -> String {
    format!("\"$HOME/.isthmus-pilots/{host}/{name}/secret\"")
}
