//! A pseudo terminal, for what only people see.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::Stdio,
    thread::JoinHandle,
};

use rustix::{
    fs::{Mode, OFlags},
    io::{FdFlags, fcntl_setfd},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

/// A terminal that shows what is written to it, read from its beginning.
#[derive(Debug)]
pub struct Terminal {
    controller: File,
    user: OwnedFd,
    reader: JoinHandle<Vec<u8>>,
}

impl Default for Terminal {
    fn default() -> Self {
        Self::open()
    }
}

impl Terminal {
    /// A new one, which is nobody's controlling terminal.
    #[must_use]
    pub fn open() -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        fcntl_setfd(&controller, FdFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let user = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        let controller = File::from(controller);
        let mut shown = controller.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut chunk = [0; 4096];
            // Ends with an error on Linux, with an end of file elsewhere, when nobody has it open.
            while let Ok(length @ 1..) = shown.read(&mut chunk) {
                all.extend_from_slice(&chunk[..length]);
            }
            all
        });
        Self { controller, user, reader }
    }

    /// The end that a program gets.
    #[must_use]
    pub fn stdio(&self) -> Stdio {
        self.user.try_clone().unwrap().into()
    }

    /// Types something.
    pub fn type_in(&mut self, keys: &[u8]) {
        self.controller.write_all(keys).unwrap();
    }

    /// All that was shown, once every program that had it has ended.
    #[must_use]
    pub fn shown(self) -> String {
        drop(self.user);
        String::from_utf8_lossy(&self.reader.join().unwrap()).into_owned()
    }
}
