//! Starts the daemon so that nothing ties it to whoever started it.
//!
//! The only place of the product that starts a process, and the only unsafe code of the shim. The
//! daemon gets a session of its own, no terminal, no open file of ours, and a working directory that
//! pins nobody's files.
#![expect(unsafe_code, reason = "std cannot start a process in a session of its own, or without inheritance")]

use std::{ffi::OsString, io, path::Path};

/// A daemon to be started.
#[derive(Debug)]
pub(crate) struct Daemon<'a> {
    /// The program's file.
    pub(crate) program: &'a Path,
    /// What follows its name on the command line.
    pub(crate) arguments: &'a [OsString],
    /// Its whole environment.
    pub(crate) environment: &'a [(OsString, OsString)],
    /// Where it works.
    pub(crate) directory: &'a Path,
    /// What it says before its log is open (on Windows it writes there by itself).
    pub(crate) start_log: &'a Path,
}

pub(crate) use platform::Spawned;

#[cfg(unix)]
mod platform {
    use std::{
        fs::{self, OpenOptions},
        os::{
            fd::BorrowedFd,
            unix::{fs::OpenOptionsExt, process::CommandExt, process::ExitStatusExt},
        },
        process::{Child, Command, Stdio},
        thread,
    };

    use super::{Daemon, io};

    /// A process that was started.
    #[derive(Debug)]
    pub(crate) struct Spawned(Child);

    impl Daemon<'_> {
        /// Starts it.
        pub(crate) fn spawn(&self) -> io::Result<Spawned> {
            close_on_exec()?;
            let log = OpenOptions::new().append(true).create(true).mode(0o600).open(self.start_log);
            let mut command = Command::new(self.program);
            command
                .args(self.arguments)
                .env_clear()
                .envs(self.environment.iter().map(|(name, value)| (name, value)))
                .current_dir(self.directory)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log.map_or_else(|_| Stdio::null(), Stdio::from));
            // SAFETY: between fork and exec this only makes a system call, which allocates nothing.
            unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) };
            command.spawn().map(Spawned)
        }
    }

    /// Marks everything that this process has inherited, such as a pipe that somebody waits on, so
    /// that it ends here. What Rust opens is marked from the start.
    fn close_on_exec() -> io::Result<()> {
        let numbers: Vec<i32> = match fs::read_dir("/dev/fd") {
            Ok(entries) => entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect(),
            Err(_) => (3..1024).collect(),
        };
        for number in numbers.into_iter().filter(|&number| number > 2) {
            // SAFETY: the number is used for one call that changes a flag; if it is not open, or is
            // the directory that was just listed, the call fails and changes nothing.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            let _ = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC);
        }
        Ok(())
    }

    impl Spawned {
        /// The exit code if it has ended; a signal's number with the shell's 128 added.
        pub(crate) fn exit_code(&mut self) -> Option<i32> {
            let status = self.0.try_wait().ok().flatten()?;
            Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
        }

        /// Ends it.
        pub(crate) fn kill(mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }

        /// Leaves it to itself; when it ends, this process takes note, so that none is left defunct.
        pub(crate) fn release(mut self) {
            // Waiting takes a thread, of which a small one will do.
            let _ = thread::Builder::new().name("reaper".into()).stack_size(64 * 1024).spawn(move || self.0.wait());
        }
    }
}

#[cfg(windows)]
mod platform {
    use std::{
        ffi::{OsStr, OsString},
        mem,
        os::windows::{
            ffi::OsStrExt,
            io::{AsRawHandle, FromRawHandle, OwnedHandle},
        },
        ptr,
    };

    use windows_sys::Win32::{
        Foundation::{ERROR_ACCESS_DENIED, WAIT_OBJECT_0},
        System::Threading::{
            CREATE_BREAKAWAY_FROM_JOB, CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW, CREATE_UNICODE_ENVIRONMENT,
            CreateProcessW, GetExitCodeProcess, PROCESS_INFORMATION, STARTUPINFOW, TerminateProcess,
            WaitForSingleObject,
        },
    };

    use super::{Daemon, io};

    /// A process that was started.
    #[derive(Debug)]
    pub(crate) struct Spawned(OwnedHandle);

    impl Daemon<'_> {
        /// Starts it. std would pass on every inheritable handle of this process, and with them the
        /// pipes that somebody waits on (rust-lang/rust#54760); so the call is made here.
        pub(crate) fn spawn(&self) -> io::Result<Spawned> {
            let detached = CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP | CREATE_UNICODE_ENVIRONMENT;
            // Out of the starter's job, which may be ended as a whole; not every job lets go.
            match self.create(detached | CREATE_BREAKAWAY_FROM_JOB) {
                Err(error) if error.raw_os_error() == Some(ERROR_ACCESS_DENIED.cast_signed()) => self.create(detached),
                outcome => outcome,
            }
        }

        fn create(&self, flags: u32) -> io::Result<Spawned> {
            let program = wide(self.program.as_os_str())?;
            let mut command_line = quoted(self.program.as_os_str());
            for argument in self.arguments {
                command_line.push(" ");
                command_line.push(quoted(argument));
            }
            let mut command_line = wide(&command_line)?;
            let environment = environment_block(self.environment)?;
            let directory = wide(self.directory.as_os_str())?;
            // SAFETY: both structures are plain data for which zero bytes mean "nothing special".
            let (mut startup, mut process): (STARTUPINFOW, PROCESS_INFORMATION) = unsafe { mem::zeroed() };
            startup.cb = u32::try_from(mem::size_of::<STARTUPINFOW>()).unwrap_or_default();
            // SAFETY: all strings end with NUL and outlive the call; the command line may be
            // written to; 0 stands for "no handle is inherited".
            let created = unsafe {
                CreateProcessW(
                    program.as_ptr(),
                    command_line.as_mut_ptr(),
                    ptr::null(),
                    ptr::null(),
                    0,
                    flags,
                    environment.as_ptr().cast(),
                    directory.as_ptr(),
                    &raw const startup,
                    &raw mut process,
                )
            };
            if created == 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the call has succeeded, so both handles are open and nobody else's.
            let (process, _thread) = unsafe {
                (OwnedHandle::from_raw_handle(process.hProcess), OwnedHandle::from_raw_handle(process.hThread))
            };
            Ok(Spawned(process))
        }
    }

    impl Spawned {
        /// The exit code if it has ended.
        pub(crate) fn exit_code(&mut self) -> Option<i32> {
            let handle = self.0.as_raw_handle();
            let mut code = 0;
            // SAFETY: the handle is open as long as `self`.
            let has_ended = unsafe {
                WaitForSingleObject(handle, 0) == WAIT_OBJECT_0 && GetExitCodeProcess(handle, &raw mut code) != 0
            };
            has_ended.then_some(code.cast_signed())
        }

        /// Ends it.
        pub(crate) fn kill(self) {
            // SAFETY: the handle is open as long as `self`.
            unsafe { TerminateProcess(self.0.as_raw_handle(), 1) };
        }

        /// Leaves it to itself.
        pub(crate) fn release(self) {}
    }

    fn wide(text: &OsStr) -> io::Result<Vec<u16>> {
        let mut units: Vec<u16> = text.encode_wide().collect();
        if units.contains(&0) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path contains a zero character"));
        }
        units.push(0);
        Ok(units)
    }

    /// An argument as `CommandLineToArgvW` reads it back: backslashes count only before a quote.
    fn quoted(argument: &OsStr) -> OsString {
        use std::os::windows::ffi::OsStringExt;

        let (quote, backslash) = (u16::from(b'"'), u16::from(b'\\'));
        let mut units = vec![quote];
        let mut backslashes = 0;
        for unit in argument.encode_wide() {
            if unit == quote {
                units.extend(std::iter::repeat_n(backslash, backslashes + 1));
            }
            backslashes = if unit == backslash { backslashes + 1 } else { 0 };
            units.push(unit);
        }
        units.extend(std::iter::repeat_n(backslash, backslashes));
        units.push(quote);
        OsString::from_wide(&units)
    }

    /// `NAME=value`, each ended by NUL, and one more at the end.
    fn environment_block(variables: &[(OsString, OsString)]) -> io::Result<Vec<u16>> {
        let mut block = Vec::new();
        for (name, value) in variables {
            let mut line = name.clone();
            line.push("=");
            line.push(value);
            block.extend(wide(&line)?);
        }
        if block.is_empty() {
            block.push(0);
        }
        block.push(0);
        Ok(block)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn arguments_are_quoted_as_windows_reads_them() {
            for (argument, expected) in [
                ("plain", r#""plain""#),
                ("", r#""""#),
                (r"C:\My Data\", r#""C:\My Data\\""#),
                (r#"say "hi""#, r#""say \"hi\"""#),
                (r#"a\"b"#, r#""a\\\"b""#),
            ] {
                assert_eq!(quoted(OsStr::new(argument)), OsStr::new(expected), "{argument}");
            }
        }
    }
}
