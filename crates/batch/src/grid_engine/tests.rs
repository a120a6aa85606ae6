//! Tables of what Grid Engine 8.1.9 wrote, and what that means.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::arguments;
use super::parse::{self, Environment, Phase, Rule};
use crate::pilot::Request;
use crate::state::End;

const JOBS: &str = "<?xml version='1.0'?>
<job_info  xmlns:xsd=\"http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd\">
  <queue_info>
    <job_list state=\"running\">
      <JB_job_number>1</JB_job_number>
      <JAT_prio>0.50000</JAT_prio>
      <JB_name>p1</JB_name>
      <JB_owner>root</JB_owner>
      <state>r</state>
      <JAT_start_time>2026-11-28T21:00:25</JAT_start_time>
      <queue_name>main.q@n2</queue_name>
      <master>SLAVE</master>
      <slots>1</slots>
    </job_list>
    <job_list state=\"running\">
      <JB_job_number>1</JB_job_number>
      <JAT_prio>0.50000</JAT_prio>
      <JB_name>p1</JB_name>
      <JB_owner>root</JB_owner>
      <state>r</state>
      <JAT_start_time>2026-11-28T21:00:25</JAT_start_time>
      <queue_name>main.q@head</queue_name>
      <master>MASTER</master>
      <slots>1</slots>
    </job_list>
  </queue_info>
  <job_info>
    <job_list state=\"pending\">
      <JB_job_number>3</JB_job_number>
      <JAT_prio>0.75000</JAT_prio>
      <JB_name>p3</JB_name>
      <JB_owner>root</JB_owner>
      <state>qw</state>
      <JB_submission_time>2026-11-28T20:58:52</JB_submission_time>
      <queue_name></queue_name>
      <slots>40</slots>
    </job_list>
  </job_info>
</job_info>
";

const QUEUES: &str = "<?xml version='1.0'?>
<job_info>
  <queue_info>
    <Queue-List>
      <name>main.q@head</name><qtype>BIP</qtype><slots_used>2</slots_used><slots_resv>0</slots_resv>
      <slots_total>4</slots_total><load_avg>9.77002</load_avg><arch>lx-amd64</arch>
      <job_list state=\"running\"><JB_job_number>1</JB_job_number><JB_name>p1</JB_name><state>r</state><slots>2</slots></job_list>
    </Queue-List>
    <Queue-List>
      <name>main.q@n2</name><qtype>BIP</qtype><slots_used>0</slots_used><slots_resv>0</slots_resv><slots_total>4</slots_total>
    </Queue-List>
    <Queue-List>
      <name>main.q@n3</name><qtype>BIP</qtype><slots_used>0</slots_used><slots_total>4</slots_total><state>au</state>
    </Queue-List>
    <Queue-List>
      <name>main.q@n4</name><qtype>BIP</qtype><slots_used>0</slots_used><slots_total>4</slots_total><state>a</state>
    </Queue-List>
  </queue_info>
  <job_info></job_info>
</job_info>";

const HOSTS: &str = "<?xml version='1.0'?>
<qhost>
 <host name='global'><hostvalue name='mem_total'>-</hostvalue></host>
 <host name='head'>
   <hostvalue name='num_proc'>2</hostvalue>
   <hostvalue name='mem_total'>23.5G</hostvalue>
   <resourcevalue name='m_socket' dominance='hl'>1.000000</resourcevalue>
   <resourcevalue name='gpu' dominance='hf'>1.000000</resourcevalue>
   <resourcevalue name='slow' dominance='hf'>0.000000</resourcevalue>
 </host>
 <host name='n2'><hostvalue name='mem_total'>512.0M</hostvalue></host>
</qhost>";

/// What `qacct -j` wrote, without the lines of usage.
fn account(failed: &str, status: &str, wall: &str, category: &str) -> String {
    format!(
        "==============================================================
qname        main.q
hostname     head
jobname      p2
jobnumber    4
taskid       undefined
start_time   Sat Nov 28 21:00:37 2026
granted_pe   smp
slots        4
failed       {failed}
exit_status  {status}
ru_wallclock {wall}
category     {category}
"
    )
}

#[test]
fn qstat_lists_a_job_once_for_each_slot() {
    let jobs = parse::jobs(JOBS).unwrap();
    assert_eq!(jobs.len(), 2);
    assert_eq!((jobs[0].id.as_str(), jobs[0].name.as_str(), jobs[0].phase), ("1", "p1", Phase::Running));
    assert_eq!(jobs[0].hosts, ["head", "n2"]);
    assert_eq!(jobs[0].start, Some(humantime::parse_rfc3339_weak("2026-11-28T21:00:25").unwrap()));
    assert_eq!((jobs[1].id.as_str(), jobs[1].phase, jobs[1].hosts.len()), ("3", Phase::Pending, 0));
    let with =
        |letters: &str| parse::jobs(&JOBS.replace(">qw<", &format!(">{letters}<"))).map(|jobs| jobs[1].phase);
    for (letters, want) in [
        ("hqw", Phase::Pending),
        ("Eqw", Phase::Error),
        ("t", Phase::Running),
        ("Rr", Phase::Running),
        ("S", Phase::Suspended),
        ("dr", Phase::Ending),
    ] {
        assert_eq!(with(letters), Ok(want), "{letters}");
    }
    for out in ["", "x", "<job_info><job_list/></job_info>", "<job_info>", &JOBS.replace("qw", "?")] {
        assert!(parse::jobs(out).is_err(), "{out}");
    }
}

#[test]
fn qstat_says_why_a_job_waits() {
    let out = "<?xml version='1.0'?><detailed_job_info><djob_info><element><JB_job_number>6</JB_job_number>
<JB_job_name>p6</JB_job_name></element></djob_info><messages><element><SME_global_message_list><element>
<MES_message_number>37</MES_message_number>
<MES_message>queue instance &quot;main.q@n2&quot; dropped because it is full</MES_message>
</element></SME_global_message_list></element></messages></detailed_job_info>";
    let reason = "queue instance \"main.q@n2\" dropped because it is full".to_owned();
    assert_eq!(parse::described(out), Ok(Some(("p6".to_owned(), reason))));
    let none = out.replace(
        "queue instance &quot;main.q@n2&quot; dropped because it is full",
        "There are no messages available",
    );
    assert_eq!(parse::described(&none), Ok(Some(("p6".to_owned(), String::new()))));
    assert_eq!(
        parse::described(
            "<?xml version='1.0'?>\n<unknown_jobs >\n    <ST_name>99</ST_name>\n</unknown_jobs>\n"
        ),
        Ok(None)
    );
    assert_eq!(parse::described("<unknown_jobs><>99</></unknown_jobs>"), Ok(None));
    assert!(parse::described("").is_err());
}

#[test]
fn qacct_says_how_a_job_ended() {
    for (failed, status, wall, category, want) in [
        ("0", "0", "7s", "-l h_rt=60", End::Completed),
        ("0", "3", "0s", "-l h_rt=60", End::Failed { status: 3, signal: 0 }),
        (
            "100 : assumedly after job",
            "137                  (Killed)",
            "0s",
            "-l h_rt=60",
            End::Failed { status: 0, signal: 9 },
        ),
        (
            "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit",
            "137 (Killed)",
            "4s",
            "-l h_rt=4 -pe smp 4",
            End::TimeLimit,
        ),
        ("100 : assumedly after job", "137", "4.013s", "-l mem_free=1M,h_rt=4", End::TimeLimit),
        (
            "26  : opening input/output file",
            "0",
            "0s",
            "",
            End::Other { said: "26  : opening input/output file".to_owned() },
        ),
    ] {
        assert_eq!(
            parse::account(&account(failed, status, wall, category), "4", "p2"),
            Some(want),
            "{failed}"
        );
    }
    let out = account("0", "0", "7s", "");
    assert_eq!(parse::account(&out, "4", "p3"), None);
    assert_eq!(parse::account(&out, "5", "p2"), None);
    assert_eq!(parse::account("error: job id 99 not found\n", "99", "p2"), None);
    let two = account("0", "3", "7s", "") + &out;
    assert_eq!(parse::account(&two, "4", "p2"), Some(End::Completed));
}

#[test]
fn queues_and_hosts_give_classes_of_nodes() {
    let hosts = parse::hosts(HOSTS).unwrap();
    assert_eq!((hosts["head"].memory_bytes, hosts["n2"].memory_bytes), ((47 << 30) / 2, 512 << 20));
    assert_eq!(hosts["head"].features, ["gpu"]);
    let classes = parse::capacity(QUEUES, &hosts).unwrap();
    let counts: Vec<_> =
        classes.iter().map(|class| (class.nodes, class.nodes_free, class.cores, class.cores_free)).collect();
    assert_eq!(counts, [(1, 0, 4, 2), (1, 1, 4, 4), (1, 0, 4, 0)]);
    assert_eq!(classes[0].queue.as_deref(), Some("main.q"));
    assert!(parse::capacity(&QUEUES.replace("main.q@n2", "n2"), &hosts).is_err());
}

#[test]
fn a_parallel_environment_that_fits_is_taken() {
    let shown =
        "pe_name            two\nslots              999\nallocation_rule    2\ncontrol_slaves     TRUE\n";
    let two = parse::environment(shown).unwrap();
    assert_eq!(two, Environment { name: "two".to_owned(), rule: Rule::Each(2), control_slaves: true });
    assert_eq!(parse::environment(&shown.replace("    2\n", " $round_robin\n")).unwrap().rule, Rule::Other);
    assert_eq!(parse::environment(""), None);
    let smp = Environment { name: "smp".to_owned(), rule: Rule::One, control_slaves: false };
    let loose = Environment { control_slaves: false, ..two.clone() };
    let asked = |nodes, cores| Request {
        cores: NonZeroU32::new(cores),
        ..Request::of(NonZeroU32::new(nodes).unwrap())
    };
    let all = [loose, smp, two];
    let found =
        |nodes, cores| arguments::environment(&asked(nodes, cores), &all).map(|name| name.to_string());
    assert_eq!(
        (found(1, 4).as_deref(), found(3, 2).as_deref(), found(3, 4)),
        (Some("smp"), Some("two"), None)
    );
    assert!(!arguments::is_parallel(&asked(1, 0)) && arguments::is_parallel(&asked(2, 0)));
}

#[test]
fn a_request_becomes_options() {
    let mut request = Request::of(NonZeroU32::new(3).unwrap());
    request.cores = NonZeroU32::new(2);
    request.memory_bytes = Some(1);
    request.time = Some(Duration::from_millis(1500));
    request.tags = vec!["gpu".parse().unwrap()];
    request.queue = Some("main.q".parse().unwrap());
    request.account = Some("a1".parse().unwrap());
    request.reservation = Some("7".parse().unwrap());
    assert_eq!(
        arguments::requested(&request, Some(&"two".parse().unwrap())).join(" "),
        "-pe two 6 -R y -l h_rt=2 -l mem_free=1M -l gpu=TRUE -q main.q -P a1 -ar 7"
    );
}

#[test]
fn a_host_without_an_agent_ends_the_job() {
    let directory = tempfile::tempdir().unwrap();
    let (node, hosts) = (directory.path().join("p node"), directory.path().join("hosts"));
    std::fs::write(&hosts, "n1 2 all.q@n1 <NULL>\nn2 2 all.q@n2 <NULL>\nn3 2 all.q@n3 <NULL>\n").unwrap();
    for program in ["sh", "sleep"] {
        std::os::unix::fs::symlink(format!("/bin/{program}"), directory.path().join(program)).unwrap();
    }
    let qrsh = directory.path().join("qrsh");
    std::fs::write(&qrsh, "#!/bin/sh\n[ \"$3\" = n3 ] && exec sleep 5\necho \"$@\"\nexit 42\n").unwrap();
    std::fs::set_permissions(&qrsh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let run = |what: &str, hosts: &Path| {
        std::fs::write(&node, what).unwrap();
        let script = arguments::batch_script(&node);
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", &script]).env_clear().env("PE_HOSTFILE", hosts).env("PATH", directory.path());
        // What n3 runs goes on for a while, and holds this.
        let log = directory.path().join("log");
        let status = shell.stdout(std::fs::File::create(&log).unwrap()).status().unwrap();
        (status.code(), std::fs::read_to_string(log).unwrap())
    };
    let failed = format!(
        "-inherit -nostdin n2 /bin/sh {}\n{{\"failed\":{{\"host\":\"n2\",\"reason\":\"qrsh ended with status 42\"}}}}\n",
        node.display()
    );
    let in_order = "trap 'exit 0' TERM\nsleep 5 &\nwait";
    assert_eq!(run(in_order, &hosts), (Some(1), failed));
    assert_eq!(run("echo here; exit 7", Path::new("none")), (Some(7), "here\n".to_owned()));
}

#[test]
fn a_silent_master_is_known_by_its_words() {
    for said in [
        "error: commlib error: got select error (Connection refused)",
        "Unable to run job: unable to send message to qmaster using port 6444 on host \"head\": got send error.",
    ] {
        assert!(parse::is_unreachable(said), "{said}");
    }
    assert!(!parse::is_unreachable("denied: job \"99\" does not exist"));
}

proptest! {
    #[test]
    fn no_output_makes_the_parsers_panic(text in "\\PC*|(<[a-zA-Z_]{0,8}>|</[a-z]{0,3}>|[0-9.KMG@= \n]){0,40}") {
        let _ = (parse::jobs(&text), parse::described(&text), parse::hosts(&text), parse::job_id(&text));
        let _ = (parse::environment(&text), parse::account(&text, "1", "p"), parse::is_unreachable(&text));
        let _ = parse::capacity(&text, &Default::default());
    }

    /// Values in the right places get further.
    #[test]
    fn no_value_makes_the_parsers_panic(value in "[-0-9.KMGTPsé:= ]{0,24}") {
        let _ = parse::capacity(&QUEUES.replace(">4<", &format!(">{value}<")), &Default::default());
        let _ = parse::hosts(&HOSTS.replace("23.5G", &value));
        let _ = parse::jobs(&JOBS.replace("2026-11-28T21:00:25", &value));
        let _ = parse::account(&account(&value, &value, &value, &format!("-l h_rt={value}")), "4", "p2");
        let _ = parse::environment(&format!("pe_name x\nallocation_rule {value}\n"));
    }
}
