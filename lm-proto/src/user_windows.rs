//! Which user a Windows process belongs to, as a security identifier in text (`S-1-5-21-…`).
//!
//! std and `interprocess` know processes but not their users, hence the calls into the system.
#![expect(unsafe_code, reason = "process tokens are reached through the Windows API only")]

use std::{io, ptr};

use windows_sys::Win32::{
    Foundation::{CloseHandle, HANDLE, LocalFree},
    Security::{Authorization::ConvertSidToStringSidW, GetTokenInformation, TOKEN_QUERY, TOKEN_USER, TokenUser},
    System::Threading::{OpenProcess, OpenProcessToken, PROCESS_QUERY_LIMITED_INFORMATION},
};

struct OwnedHandle(HANDLE);

impl Drop for OwnedHandle {
    fn drop(&mut self) {
        // SAFETY: the handle was returned by the system to this struct alone and is closed once.
        unsafe { CloseHandle(self.0) };
    }
}

/// The user of this process.
pub(crate) fn current() -> io::Result<String> {
    of_process(std::process::id())
}

/// The user of the process with the given id.
pub(crate) fn of_process(pid: u32) -> io::Result<String> {
    // SAFETY: plain call; a null handle is checked for.
    let process = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, pid) };
    if process.is_null() {
        return Err(io::Error::last_os_error());
    }
    let process = OwnedHandle(process);
    let mut token = ptr::null_mut();
    // SAFETY: the process handle is open and `token` outlives the call.
    if unsafe { OpenProcessToken(process.0, TOKEN_QUERY, &raw mut token) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let token = OwnedHandle(token);

    let mut length = 0;
    // SAFETY: asks for the length only, which fails by design and fills `length`.
    unsafe { GetTokenInformation(token.0, TokenUser, ptr::null_mut(), 0, &raw mut length) };
    // u64 elements give the buffer the alignment of TOKEN_USER, which holds a pointer.
    let mut buffer = vec![0_u64; (length as usize).div_ceil(8)];
    // SAFETY: the buffer has at least `length` bytes and outlives the call.
    if unsafe { GetTokenInformation(token.0, TokenUser, buffer.as_mut_ptr().cast(), length, &raw mut length) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above wrote a TOKEN_USER, whose SID lies in the same buffer, still alive.
    let sid = unsafe { (*buffer.as_ptr().cast::<TOKEN_USER>()).User.Sid };
    let mut text = ptr::null_mut();
    // SAFETY: `sid` is valid and `text` receives a string allocated by the system.
    if unsafe { ConvertSidToStringSidW(sid, &raw mut text) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: on success `text` is a NUL-terminated string, read up to its NUL and freed once.
    unsafe {
        let length = (0..).take_while(|&index| *text.add(index) != 0).count();
        let sid = String::from_utf16_lossy(std::slice::from_raw_parts(text, length));
        LocalFree(text.cast());
        Ok(sid)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_current_user_has_an_identifier() {
        assert!(super::current().unwrap().starts_with("S-1-"));
    }
}
