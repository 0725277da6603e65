//! A pseudo terminal, for what only people see.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use rustix::{
    fs::{Mode, OFlags},
    io::{FdFlags, fcntl_setfd},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, tcgetattr},
};

use crate::wait::wait_until;

/// A terminal that shows what is written to it, read from its beginning.
#[derive(Debug)]
pub struct Terminal {
    controller: File,
    user: OwnedFd,
    so_far: Arc<Mutex<Vec<u8>>>,
    /// How much had been shown when something was typed last.
    typed_at: usize,
    reader: JoinHandle<()>,
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
        let so_far = Arc::<Mutex<Vec<u8>>>::default();
        let all = Arc::clone(&so_far);
        let reader = std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            // Ends with an error on Linux, with an end of file elsewhere, when nobody has it open.
            while let Ok(length @ 1..) = shown.read(&mut chunk) {
                all.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&chunk[..length]);
            }
        });
        Self { controller, user, so_far, typed_at: 0, reader }
    }

    /// The end that a program gets.
    #[must_use]
    pub fn stdio(&self) -> Stdio {
        self.user.try_clone().unwrap().into()
    }

    /// Types something.
    pub fn type_in(&mut self, keys: &[u8]) {
        self.typed_at = self.so_far().len();
        self.controller.write_all(keys).unwrap();
    }

    fn so_far(&self) -> Vec<u8> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until something new was shown that ends like this.
    pub fn wait_for(&self, end: &str) {
        wait_until(&format!("the terminal to show `{end}`"), || {
            let shown = self.so_far();
            (shown.len() > self.typed_at && shown.ends_with(end.as_bytes())).then_some(())
        });
    }

    /// Waits for a prompt and answers it.
    pub fn answer(&mut self, prompt: &str, line: &str) {
        self.wait_for(prompt);
        self.type_in(format!("{line}\n").as_bytes());
    }

    /// Whether it shows what is typed.
    #[must_use]
    pub fn echoes(&self) -> bool {
        tcgetattr(&self.user).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    /// All that was shown, once every program that had it has ended.
    #[must_use]
    pub fn shown(self) -> String {
        drop(self.user);
        self.reader.join().unwrap();
        String::from_utf8_lossy(&self.so_far.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}
