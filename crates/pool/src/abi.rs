//! What C programs call: isthmus_pool.h describes it.
#![allow(clippy::missing_safety_doc, reason = "the header says what C programs must do")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::Duration;

use bytes::Bytes;
use isthmus_workers::Finished;
use isthmus_workers::message::TaskId;

use crate::pool::Running;
use crate::{Pool, Worker};

/// Either end of a pool.
enum End {
    Master(Pool),
    Worker(Worker),
}

/// A pool, for C.
pub struct Handle {
    end: End,
    ticket: CString,
}

impl Handle {
    fn running(&self) -> &Running {
        match &self.end {
            End::Master(pool) => &pool.running,
            End::Worker(worker) => &worker.running,
        }
    }
}

/// A task, a result, or what runs before the first task.
#[repr(C)]
pub struct Item {
    id: u64,
    kind: c_int,
    data: *const c_void,
    bytes: usize,
    owner: *mut c_void,
}

/// Numbers of a pool.
#[repr(C)]
pub struct Numbers {
    waiting: u64,
    out: u64,
    done: u64,
    again: u64,
    dropped: u64,
    members: u64,
    lost: u64,
}

/// What an item is.
const DONE: c_int = 0;
const FAILED: c_int = 1;
const LOST: c_int = 2;
/// What calls return.
const OK: c_int = 1;
const NOTHING: c_int = 0;
const ENDED: c_int = -1;
const WRONG: c_int = -2;

/// Writes an error's text, cut to the room that there is.
unsafe fn tell(error: &dyn std::fmt::Display, into: *mut c_char, room: usize) {
    if into.is_null() || room == 0 {
        return;
    }
    let text = error.to_string().replace('\0', " ");
    let mut length = text.len().min(room - 1);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    // SAFETY: the caller has given `room` bytes, of which these are at most one less.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), into, length);
        *into.add(length) = 0;
    }
}

unsafe fn text<'a>(from: *const c_char) -> Option<&'a str> {
    if from.is_null() {
        return Some("");
    }
    // SAFETY: the caller gives a string with its end.
    unsafe { CStr::from_ptr(from) }.to_str().ok()
}

unsafe fn bytes(data: *const c_void, length: usize) -> Bytes {
    if data.is_null() || length == 0 {
        return Bytes::new();
    }
    // SAFETY: the caller gives as many bytes.
    Bytes::copy_from_slice(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) })
}

fn within(milliseconds: c_int) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

/// Runs a call. A panic must not unwind into C.
fn guarded<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(otherwise)
}

unsafe fn give(item: *mut Item, id: u64, kind: c_int, data: Bytes) -> c_int {
    if item.is_null() {
        return WRONG;
    }
    let owner = Box::new(data);
    let (data, bytes) = (owner.as_ptr().cast::<c_void>(), owner.len());
    let found = Item { id, kind, data, bytes, owner: Box::into_raw(owner).cast::<c_void>() };
    // SAFETY: the caller has room for an item there.
    unsafe { item.write(found) };
    OK
}

/// Begins a pool, as its master.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_begin(
    options: *const c_char,
    setup: *const c_void,
    setup_bytes: usize,
    error: *mut c_char,
    room: usize,
) -> *mut Handle {
    guarded(ptr::null_mut(), || {
        // SAFETY: as the header says.
        let (options, setup) = unsafe { (text(options), bytes(setup, setup_bytes)) };
        let Some(options) = options else {
            // SAFETY: as the header says.
            unsafe { tell(&"the options aren't UTF-8", error, room) };
            return ptr::null_mut();
        };
        match Pool::begin(options, setup) {
            Ok(pool) => {
                let ticket = CString::new(pool.ticket()).unwrap_or_default();
                Box::into_raw(Box::new(Handle { end: End::Master(pool), ticket }))
            }
            Err(found) => {
                // SAFETY: as the header says.
                unsafe { tell(&found, error, room) };
                ptr::null_mut()
            }
        }
    })
}

/// Joins a pool, as a worker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_join(
    ticket: *const c_char,
    options: *const c_char,
    error: *mut c_char,
    room: usize,
) -> *mut Handle {
    guarded(ptr::null_mut(), || {
        // SAFETY: as the header says.
        let (Some(ticket), Some(options)) = (unsafe { (text(ticket), text(options)) }) else {
            // SAFETY: as the header says.
            unsafe { tell(&"the ticket or the options aren't UTF-8", error, room) };
            return ptr::null_mut();
        };
        match Worker::join(ticket, options) {
            Ok(worker) => {
                Box::into_raw(Box::new(Handle { end: End::Worker(worker), ticket: CString::default() }))
            }
            Err(found) => {
                // SAFETY: as the header says.
                unsafe { tell(&found, error, room) };
                ptr::null_mut()
            }
        }
    })
}

/// What workers need to join.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_ticket(handle: *const Handle) -> *const c_char {
    // SAFETY: as the header says.
    unsafe { handle.as_ref() }.map_or(ptr::null(), |handle| handle.ticket.as_ptr())
}

/// Adds a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_submit(
    handle: *const Handle,
    data: *const c_void,
    length: usize,
    id: *mut u64,
    error: *mut c_char,
    room: usize,
) -> c_int {
    guarded(WRONG, || {
        // SAFETY: as the header says.
        let Some(Handle { end: End::Master(pool), .. }) = (unsafe { handle.as_ref() }) else { return WRONG };
        // SAFETY: as the header says.
        match pool.submit(unsafe { bytes(data, length) }) {
            Ok(TaskId(number)) => {
                if !id.is_null() {
                    // SAFETY: the caller has room for a number there.
                    unsafe { id.write(number) };
                }
                OK
            }
            Err(found) => {
                // SAFETY: as the header says.
                unsafe { tell(&found, error, room) };
                if matches!(found, crate::PoolError::Ended(_)) { ENDED } else { WRONG }
            }
        }
    })
}

/// Takes a task back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_cancel(handle: *const Handle, id: u64) -> c_int {
    guarded(WRONG, || {
        // SAFETY: as the header says.
        match unsafe { handle.as_ref() } {
            Some(Handle { end: End::Master(pool), .. }) => c_int::from(pool.cancel(TaskId(id))),
            _ => WRONG,
        }
    })
}

/// Waits for a result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_result(
    handle: *const Handle,
    milliseconds: c_int,
    item: *mut Item,
) -> c_int {
    if item.is_null() {
        return WRONG;
    }
    guarded(WRONG, || {
        // SAFETY: as the header says.
        let Some(Handle { end: End::Master(pool), .. }) = (unsafe { handle.as_ref() }) else { return WRONG };
        match pool.next(within(milliseconds)) {
            Err(_) => ENDED,
            Ok(None) => NOTHING,
            Ok(Some((TaskId(id), found))) => {
                let (kind, data) = match found {
                    Finished::Done(data) => (DONE, data),
                    Finished::Failed(data) => (FAILED, data),
                    Finished::Lost { times, place } => {
                        let place =
                            if place.is_empty() { String::new() } else { format!(", last at {place}") };
                        (
                            LOST,
                            format!("the process that ran it ended, {times} times{place}")
                                .into_bytes()
                                .into(),
                        )
                    }
                };
                // SAFETY: as the header says.
                unsafe { give(item, id, kind, data) }
            }
        }
    })
}

/// Waits for what is to be run before the first task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_setup(handle: *const Handle, item: *mut Item) -> c_int {
    guarded(WRONG, || {
        // SAFETY: as the header says.
        match unsafe { handle.as_ref() } {
            Some(Handle { end: End::Worker(worker), .. }) => match worker.setup() {
                // SAFETY: as the header says.
                Ok(setup) => unsafe { give(item, 0, DONE, setup) },
                Err(_) => ENDED,
            },
            _ => WRONG,
        }
    })
}

/// Waits for a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_task(
    handle: *const Handle,
    milliseconds: c_int,
    item: *mut Item,
) -> c_int {
    if item.is_null() {
        return WRONG;
    }
    guarded(WRONG, || {
        // SAFETY: as the header says.
        let Some(handle) = (unsafe { handle.as_ref() }) else { return WRONG };
        match handle.running().task(within(milliseconds)) {
            // SAFETY: as the header says.
            Ok(Some((TaskId(id), arguments))) => unsafe { give(item, id, DONE, arguments) },
            Ok(None) => NOTHING,
            Err(_) => ENDED,
        }
    })
}

/// Gives a task's result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_done(
    handle: *const Handle,
    id: u64,
    failed: c_int,
    data: *const c_void,
    length: usize,
) -> c_int {
    guarded(WRONG, || {
        // SAFETY: as the header says.
        let Some(handle) = (unsafe { handle.as_ref() }) else { return WRONG };
        // SAFETY: as the header says.
        let given = handle.running().done(TaskId(id), failed != 0, unsafe { bytes(data, length) });
        if given.is_ok() { OK } else { WRONG }
    })
}

/// Numbers of a pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_numbers(handle: *const Handle, numbers: *mut Numbers) -> c_int {
    guarded(WRONG, || {
        // SAFETY: as the header says.
        let Some(Handle { end: End::Master(pool), .. }) = (unsafe { handle.as_ref() }) else { return WRONG };
        if numbers.is_null() {
            return WRONG;
        }
        let counts = pool.counts();
        let found = Numbers {
            waiting: counts.waiting,
            out: counts.out,
            done: counts.done,
            again: counts.again,
            dropped: counts.dropped,
            members: counts.members,
            lost: counts.lost,
        };
        // SAFETY: the caller has room for the numbers there.
        unsafe { numbers.write(found) };
        OK
    })
}

/// Numbers of each site, as text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_sites(handle: *const Handle, sites: *mut c_char, room: usize) -> c_int {
    guarded(WRONG, || {
        // SAFETY: as the header says.
        let Some(Handle { end: End::Master(pool), .. }) = (unsafe { handle.as_ref() }) else { return WRONG };
        let mut lines = String::new();
        for (site, counts) in pool.sites() {
            // A site that doesn't fit is left out whole.
            let line = format!("{} {} {site}\n", counts.workers, counts.done);
            if lines.len() + line.len() < room {
                lines += &line;
            }
        }
        // SAFETY: as the header says.
        unsafe { tell(&lines, sites, room) };
        OK
    })
}

/// Frees what an item holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_free(item: *mut Item) {
    // SAFETY: as the header says.
    let Some(item) = (unsafe { item.as_mut() }) else { return };
    let owner = std::mem::replace(&mut item.owner, ptr::null_mut());
    (item.data, item.bytes) = (ptr::null(), 0);
    if !owner.is_null() {
        // SAFETY: `give` made it of such a box, and it is freed once.
        drop(unsafe { Box::from_raw(owner.cast::<Bytes>()) });
    }
}

/// Why a pool has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_why(handle: *const Handle, reason: *mut c_char, room: usize) -> c_int {
    guarded(WRONG, || {
        // SAFETY: as the header says.
        let Some(handle) = (unsafe { handle.as_ref() }) else { return WRONG };
        let Some(why) = handle.running().why() else { return NOTHING };
        // SAFETY: as the header says.
        unsafe { tell(&why, reason, room) };
        if why == crate::End::Over { OK } else { ENDED }
    })
}

/// Ends a pool's part in this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_end(handle: *const Handle) {
    guarded((), || {
        // SAFETY: as the header says.
        match unsafe { handle.as_ref() } {
            Some(Handle { end: End::Master(pool), .. }) => pool.end(),
            Some(handle) => handle.running().end(),
            None => {}
        }
    });
}

/// Frees an end of a pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isthmus_pool_release(handle: *mut Handle) {
    if handle.is_null() {
        return;
    }
    guarded((), || {
        // SAFETY: as the header says: no other call goes on, and none follows.
        drop(unsafe { Box::from_raw(handle) });
    });
}
