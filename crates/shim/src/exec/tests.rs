use super::*;
use std::ffi::CString;

/// The variables that a program is started with by a process whose library is in /tmp/job.
fn started_with(environment: &[&str], library: Option<&CStr>) -> Vec<String> {
    started_as(environment, c"/tmp/job/shim.so", library)
}

/// The variables that a program is started with by a process whose library is `own`.
fn started_as(environment: &[&str], own: &CStr, library: Option<&CStr>) -> Vec<String> {
    let strings: Vec<CString> = environment.iter().map(|entry| CString::new(*entry).unwrap()).collect();
    let mut list: Vec<*const c_char> = strings.iter().map(|entry| entry.as_ptr()).collect();
    list.push(std::ptr::null());
    // SAFETY: a null-terminated list of C strings.
    let given = unsafe { Given::read(list.as_ptr(), own) };
    let mut result = Vec::new();
    let collect = |list: List| {
        for index in 0.. {
            // SAFETY: not past the end, which is null.
            let entry = unsafe { *list.add(index) };
            if entry.is_null() {
                break;
            }
            // SAFETY: a C string.
            result.push(unsafe { CStr::from_ptr(entry) }.to_str().unwrap().to_owned());
        }
        0
    };
    // SAFETY: as above.
    unsafe { rewritten(list.as_ptr(), &given, library, collect) };
    result
}

/// What [`started_as`] returns for an environment that has what the address sanitizer needs. That
/// variable stays, and is left out here.
fn settled(environment: &[&str], own: &CStr, library: Option<&CStr>) -> Vec<String> {
    const ORDER: &str = "ASAN_OPTIONS=verify_asan_link_order=0";
    let mut started = started_as(&[&[ORDER], environment].concat(), own, library);
    assert_eq!(started.remove(0), ORDER);
    started
}

#[test]
fn the_address_sanitizer_needn_t_be_the_first_library() {
    const SHIM: &str = "LD_PRELOAD=/tmp/job/shim.so";
    const ORDER: &str = "ASAN_OPTIONS=verify_asan_link_order=0";
    let own = Some(c"/tmp/job/shim.so");
    for (what, given, library, want) in [
        ("told", &[SHIM, "A=b"][..], own, &[SHIM, "A=b", ORDER][..]),
        (
            "beside others",
            &["ASAN_OPTIONS=detect_leaks=0", SHIM],
            own,
            &["ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0", SHIM],
        ),
        ("empty", &["ASAN_OPTIONS=", SHIM], own, &[ORDER, SHIM]),
        (
            "told otherwise",
            &["ASAN_OPTIONS=verify_asan_link_order=1"],
            own,
            &["ASAN_OPTIONS=verify_asan_link_order=1", SHIM],
        ),
        ("without the library", &[SHIM], None, &["LD_PRELOAD="]),
    ] {
        assert_eq!(started_with(given, library), want, "{what}");
    }
}

#[test]
fn the_library_is_added_and_taken_out() {
    let own = Some(c"/tmp/job/shim.so");
    for (name, given, library, want) in [
        ("empty", &[][..], own, &["LD_PRELOAD=/tmp/job/shim.so"][..]),
        ("at the end", &["A=b"], own, &["A=b", "LD_PRELOAD=/tmp/job/shim.so"]),
        (
            "before others, in their place",
            &["LD_PRELOAD=/x.so", "A=b"],
            own,
            &["LD_PRELOAD=/tmp/job/shim.so:/x.so", "A=b"],
        ),
        ("out", &["LD_PRELOAD=/x.so:/tmp/job/shim.so /y.so"], None, &["LD_PRELOAD=/x.so:/y.so"]),
        ("out, nothing left", &["LD_PRELOAD=/tmp/job/shim.so"], None, &["LD_PRELOAD="]),
    ] {
        assert_eq!(settled(given, c"/tmp/job/shim.so", library), want, "{name}");
    }
}

#[test]
fn paths_on_another_node_give_way_to_those_on_this_one() {
    const SHIM: &str = "/home/a/.isthmus/n2/0123456789abcdef0123456789abcdef/shim.so";
    const MPI: &str = "/home/a/.isthmus/n2/0123456789abcdef0123456789abcdef/mpi.so";
    let head = "/run/isthmus/0123456789abcdef0123456789abcdef/shim.so";
    let head_mpi = "/run/isthmus/0123456789abcdef0123456789abcdef/mpi.so";
    let other_job = "/run/isthmus/0123456789abcdef0123456789abcde0/shim.so";
    let line = |words: &[&str]| format!("LD_PRELOAD={}", words.join(":"));
    for (name, own, given, is_wanted, want) in [
        ("the head's", &[SHIM][..], &[head][..], true, &[SHIM][..]),
        ("beside others", &[SHIM], &["/x.so", head], true, &[SHIM, "/x.so"]),
        ("beside its own", &[SHIM], &[SHIM, head], true, &[SHIM]),
        ("out", &[SHIM], &[head, "/x.so"], false, &["/x.so"]),
        ("of another job", &[SHIM], &[other_job], true, &[SHIM, other_job]),
        ("with the library for MPI", &[SHIM, MPI], &[head, head_mpi], true, &[SHIM, MPI]),
        ("one of the two", &[SHIM, MPI], &[SHIM, "/x.so"], true, &[SHIM, MPI, "/x.so"]),
        ("both out", &[SHIM, MPI], &[SHIM, head_mpi], false, &[]),
    ] {
        let holds_other = given.iter().any(|word| [head, head_mpi].contains(word));
        let own = CString::new(own.join(":")).unwrap();
        let given = CString::new(line(given)).unwrap();
        let list = [given.as_ptr(), std::ptr::null()];
        // SAFETY: a null-terminated list of C strings.
        let read = unsafe { Given::read(list.as_ptr(), &own) };
        assert_eq!(read.holds_other, holds_other, "{name}");
        assert_eq!(
            read.holds_libraries,
            read.preload.is_some_and(|(_, value)| value.starts_with(own.to_bytes())),
            "{name}"
        );
        let wanted = is_wanted.then_some(own.as_c_str());
        assert_eq!(settled(&[given.to_str().unwrap()], &own, wanted), [line(want)], "{name}");
    }
}

#[test]
fn large_environments_are_kept_whole() {
    let others = format!("LD_PRELOAD={}", "/a/library.so:".repeat(200));
    let variables: Vec<String> = (0..1000).map(|index| format!("V{index}=x")).collect();
    let mut given: Vec<&str> = variables.iter().map(String::as_str).collect();
    given.push(&others);
    let got = started_with(&given, Some(c"/tmp/job/shim.so"));
    assert_eq!(got.len(), given.len() + 1);
    assert_eq!(got[1001], "ASAN_OPTIONS=verify_asan_link_order=0");
    assert_eq!(got[..1000], given[..1000]);
    assert_eq!(got[1000].matches("/a/library.so").count(), 200);
    assert!(got[1000].starts_with("LD_PRELOAD=/tmp/job/shim.so:"));
}
