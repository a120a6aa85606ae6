//! Why a batch job ends, by `scontrol --oneliner show job` (scontrol(1)).

use std::fmt;
use std::time::Duration;

/// How Slurm ends a job before its script has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Somebody has cancelled it, as by scancel(1).
    Cancelled,
    /// Its time limit is over.
    TimeLimit,
    /// One of its nodes has failed.
    NodeFailed,
    /// A job with a higher priority takes its nodes.
    Preempted,
    /// A deadline of the job (sbatch(1), `--deadline`) is over.
    Deadline,
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Cancelled => "was cancelled",
            Self::TimeLimit => "has reached its time limit",
            Self::NodeFailed => "was ended by Slurm: one of its nodes has failed",
            Self::Preempted => "was preempted: another job takes its nodes",
            Self::Deadline => "has reached its deadline",
        })
    }
}

impl End {
    /// Why a job ends, by what scontrol prints of it; `None` if it runs, or its script has ended.
    ///
    /// While a job's processes are ended its state is only `COMPLETING`. Then its time tells whether
    /// it has reached its limit.
    pub fn of(text: &str) -> Option<Self> {
        let field = |name: &str| field(text, name);
        match field("JobState")? {
            "CANCELLED" => Some(Self::Cancelled),
            "TIMEOUT" => Some(Self::TimeLimit),
            "NODE_FAIL" | "BOOT_FAIL" => Some(Self::NodeFailed),
            "PREEMPTED" => Some(Self::Preempted),
            "DEADLINE" => Some(Self::Deadline),
            "COMPLETING" => {
                let reached = Some(length(field("RunTime")?)?).zip(field("TimeLimit").and_then(length));
                Some(match reached {
                    Some((run, limit)) if run >= limit => Self::TimeLimit,
                    _ => Self::Cancelled,
                })
            }
            _ => None,
        }
    }
}

/// How much time a job has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeLeft {
    /// The job runs for so long at most.
    Left(Duration),
    /// The job has no time limit.
    NoLimit,
    /// The job doesn't run, or not yet, or it is suspended.
    NotRunning,
}

/// How much time a job has left, by what scontrol prints of it; `None` if it prints something else.
pub fn time_left(text: &str) -> Option<TimeLeft> {
    if field(text, "JobState")? != "RUNNING" {
        return Some(TimeLeft::NotRunning);
    }
    let limit = field(text, "TimeLimit")?;
    if limit == "UNLIMITED" {
        return Some(TimeLeft::NoLimit);
    }
    let (limit, run) = (length(limit)?, length(field(text, "RunTime")?)?);
    Some(TimeLeft::Left(limit.saturating_sub(run)))
}

/// A field of what scontrol prints in one line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// A time such as `1-02:03:04` (days, hours, minutes, seconds); `None` for any other text, such as
/// `UNLIMITED`.
fn length(text: &str) -> Option<Duration> {
    let (days, rest) = text.split_once('-').unwrap_or(("0", text));
    let mut seconds = days.parse::<u32>().ok().map(u64::from)?;
    let parts: Vec<&str> = rest.split(':').collect();
    let [hours, minutes, last] = parts[..] else { return None };
    for (part, length) in [(hours, 24), (minutes, 60), (last, 60)] {
        seconds = seconds * length + u64::from(part.parse::<u16>().ok()?);
    }
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_told_by_state_and_time() {
        for (text, want) in [
            ("JobId=2 JobState=RUNNING Reason=None", None),
            ("JobState=COMPLETED Reason=None", None),
            ("JobState=FAILED Reason=NonZeroExitCode", None),
            ("JobState=CANCELLED Reason=None", Some(End::Cancelled)),
            ("JobState=TIMEOUT Reason=TimeLimit", Some(End::TimeLimit)),
            ("JobState=NODE_FAIL Reason=NodeDown", Some(End::NodeFailed)),
            ("JobState=PREEMPTED Reason=None", Some(End::Preempted)),
            ("JobState=COMPLETING RunTime=00:00:08 TimeLimit=00:01:00 TimeMin=N/A", Some(End::Cancelled)),
            ("JobState=COMPLETING RunTime=00:01:21 TimeLimit=00:01:00", Some(End::TimeLimit)),
            ("JobState=COMPLETING RunTime=1-00:00:00 TimeLimit=1-00:00:00", Some(End::TimeLimit)),
            ("JobState=COMPLETING RunTime=01:01:21 TimeLimit=UNLIMITED", Some(End::Cancelled)),
            ("", None),
        ] {
            assert_eq!(End::of(text), want, "{text}");
        }
    }

    #[test]
    fn time_is_left_while_a_job_runs() {
        let left = |seconds| Some(TimeLeft::Left(Duration::from_secs(seconds)));
        for (text, want) in [
            ("JobState=RUNNING Reason=None RunTime=00:00:08 TimeLimit=00:01:00 TimeMin=N/A", left(52)),
            ("JobState=RUNNING RunTime=00:01:08 TimeLimit=00:01:00", left(0)),
            ("JobState=RUNNING RunTime=00:00:08 TimeLimit=UNLIMITED", Some(TimeLeft::NoLimit)),
            ("JobState=COMPLETING RunTime=00:00:08 TimeLimit=00:01:00", Some(TimeLeft::NotRunning)),
            ("JobState=CONFIGURING RunTime=00:00:00 TimeLimit=00:01:00", Some(TimeLeft::NotRunning)),
            ("JobState=RUNNING", None),
            ("JobState=RUNNING RunTime=00:00:08 TimeLimit=Partition_Limit", None),
            ("", None),
        ] {
            assert_eq!(time_left(text), want, "{text}");
        }
    }

    #[test]
    fn times_have_days() {
        for (text, want) in [
            ("00:00:08", Some(8)),
            ("01:02:03", Some(3723)),
            ("2-00:00:01", Some(172_801)),
            ("UNLIMITED", None),
            ("10:00", None),
            ("99999999999-00:00:00", None),
        ] {
            assert_eq!(length(text).map(|length| length.as_secs()), want, "{text}");
        }
    }
}
