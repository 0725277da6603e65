//! Where client and daemon meet: a Unix domain socket or a Windows named pipe.
//!
//! This is the only file that names `interprocess`. On Unix the socket lies in the data directory,
//! or, where that path is too long for a socket address, in a private directory of the user under a
//! name hashed from the data directory; the abstract namespace is never used, since any local user
//! can take names there. On Windows the pipe's name is hashed from the user and the data directory
//! and its access list names the user alone.
//!
//! Both ends check that the other belongs to the same user before a byte of a question is sent.

use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
};

#[cfg(unix)]
use interprocess::local_socket::ConnectOptions;
use interprocess::local_socket::{
    ListenerOptions, Name, Stream as RawBlockingStream,
    tokio::{Listener as RawListener, Stream as RawStream},
    traits::{Stream as _, StreamCommon, tokio::Listener as _},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::DataDirectory;

/// The longest socket path in bytes: macOS has room for 103, Linux for 107.
#[cfg(unix)]
const PATH_MAX: usize = 100;

/// An address to connect to or to listen on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// A socket's path or a pipe's name.
    address: PathBuf,
}

impl Endpoint {
    /// Where the daemon of this data directory is to be found: where it said, else its first choice.
    #[must_use]
    pub fn of(data: &DataDirectory) -> Self {
        let recorded = fs::read_to_string(data.endpoint_record()).ok().map(PathBuf::from);
        match recorded {
            Some(address) if Self::is_plausible(&address) => Self { address },
            _ => Self::candidates(data)
                .into_iter()
                .next()
                .unwrap_or_else(|| Self { address: data.run().join("core.sock") }),
        }
    }

    /// Where a daemon of this data directory may listen, most wanted first.
    #[cfg(unix)]
    #[must_use]
    pub fn candidates(data: &DataDirectory) -> Vec<Self> {
        use std::os::unix::ffi::OsStrExt;

        let name = format!("{}.sock", digest(data.root().as_os_str().as_bytes()));
        std::iter::once(data.run().join("core.sock"))
            .chain(crate::directory::shared_private_directories().into_iter().map(|directory| directory.join(&name)))
            .filter(|path| path.as_os_str().len() <= PATH_MAX)
            .map(|address| Self { address })
            .collect()
    }

    /// Where a daemon of this data directory may listen.
    #[cfg(windows)]
    #[must_use]
    pub fn candidates(data: &DataDirectory) -> Vec<Self> {
        // Windows paths differ in case and slashes only by habit.
        let root = data.root().to_string_lossy().to_lowercase().replace('/', "\\");
        let user = crate::user_windows::current().unwrap_or_default();
        vec![Self { address: format!("live-memory-{}", digest(format!("{user}\n{root}").as_bytes())).into() }]
    }

    #[cfg(unix)]
    fn is_plausible(address: &Path) -> bool {
        address.is_absolute() && address.as_os_str().len() <= PATH_MAX
    }

    #[cfg(windows)]
    fn is_plausible(address: &Path) -> bool {
        address.to_str().is_some_and(|name| name.starts_with("live-memory-"))
    }

    /// The socket's path or the pipe's name, for people.
    #[must_use]
    pub fn address(&self) -> &Path {
        &self.address
    }

    /// Tells clients that the daemon listens here. Only the holder of the life lock may.
    pub fn record(&self, data: &DataDirectory) -> io::Result<()> {
        let record = data.endpoint_record();
        let fresh = record.with_extension("new");
        fs::write(&fresh, self.address.as_os_str().as_encoded_bytes())?;
        fs::rename(fresh, record)
    }

    /// Connects, and refuses a daemon of another user with `PermissionDenied`.
    ///
    /// `NotFound` and `ConnectionRefused` mean that nobody listens. There is no time limit here: on
    /// Windows a connection waits until the daemon accepts.
    pub async fn connect(&self) -> io::Result<Stream> {
        let stream = self.reach().await?;
        check_peer(&stream)?;
        Ok(Stream(stream))
    }

    /// The same for a program without a runtime. It blocks while the daemon's queue of new connections
    /// is full, and so do reads and writes while the daemon does nothing: the caller limits the time.
    ///
    /// # Errors
    /// As of [`Endpoint::connect`].
    pub fn connect_blocking(&self) -> io::Result<BlockingStream> {
        let stream = RawBlockingStream::connect(self.name()?)?;
        check_peer(&stream)?;
        Ok(BlockingStream(stream))
    }

    #[cfg(unix)]
    async fn reach(&self) -> io::Result<RawStream> {
        ConnectOptions::new().name(self.name()?).connect_tokio().await
    }

    /// Waits for a free instance of the pipe in short turns: a wait without an end also outlasts a
    /// daemon that leaves meanwhile, and its successor's pipe does not end it.
    #[cfg(windows)]
    async fn reach(&self) -> io::Result<RawStream> {
        use interprocess::{
            ConnectWaitMode,
            os::windows::named_pipe::{local_socket::tokio::Stream as PipeStream, pipe_mode, tokio::DuplexPipeStream},
        };

        let path = format!(r"\\.\pipe\{}", self.address.display());
        let turn = ConnectWaitMode::Timeout(std::time::Duration::from_millis(50));
        loop {
            match DuplexPipeStream::<pipe_mode::Bytes>::connect_by_path_with_wait_mode(path.as_str(), turn).await {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                outcome => return outcome.map(|stream| PipeStream::from(stream).into()),
            }
        }
    }

    /// Listens here. Only the holder of the life lock may; the socket is closed to other users.
    pub fn listen(&self) -> io::Result<Listener> {
        #[cfg(unix)]
        if let Some(parent) = self.address.parent() {
            crate::directory::create_private(parent)?;
        }
        // Names are removed under the life lock, by us: the crate would also remove a successor's.
        let options = ListenerOptions::new().name(self.name()?).reclaim_name(false);
        let listener = restrict(options)?.create_tokio()?;
        Ok(Listener { raw: listener, identity: self.identity() })
    }

    /// Removes what a dead daemon left here, if it is a socket. Only the holder of the life lock may.
    pub fn remove_stale(&self) -> io::Result<()> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::FileTypeExt;

            match fs::symlink_metadata(&self.address) {
                Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(&self.address)?,
                Ok(_) => {
                    return Err(io::Error::new(
                        io::ErrorKind::AlreadyExists,
                        format!("`{}` is in the way and is not a socket", self.address.display()),
                    ));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether clients that connect here still reach `listener`.
    #[must_use]
    pub fn leads_to(&self, listener: &Listener) -> bool {
        self.identity() == listener.identity
    }

    /// Device and inode of the socket file; pipes have no file and keep their name while they live.
    fn identity(&self) -> Option<(u64, u64)> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;

            let metadata = fs::symlink_metadata(&self.address).ok()?;
            Some((metadata.dev(), metadata.ino()))
        }
        #[cfg(not(unix))]
        None
    }

    #[cfg(unix)]
    fn name(&self) -> io::Result<Name<'_>> {
        use interprocess::local_socket::{GenericFilePath, ToFsName};

        self.address.as_path().to_fs_name::<GenericFilePath>()
    }

    #[cfg(windows)]
    fn name(&self) -> io::Result<Name<'_>> {
        use interprocess::local_socket::{GenericNamespaced, ToNsName};

        self.address.as_os_str().to_ns_name::<GenericNamespaced>()
    }
}

#[cfg(unix)]
fn restrict(options: ListenerOptions<'_>) -> io::Result<ListenerOptions<'_>> {
    use interprocess::os::unix::local_socket::ListenerOptionsExt;

    Ok(options.mode(0o600))
}

#[cfg(windows)]
fn restrict(options: ListenerOptions<'_>) -> io::Result<ListenerOptions<'_>> {
    use interprocess::os::windows::{local_socket::ListenerOptionsExt, security_descriptor::SecurityDescriptor};

    // Without this an elevated daemon's pipe belongs to the administrators and locks its user out.
    let access = format!("D:P(A;;GA;;;{})", crate::user_windows::current()?);
    let access =
        widestring::U16CString::from_str(access).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(options.security_descriptor(SecurityDescriptor::deserialize(&access)?))
}

/// 32 hexadecimal digits that stand for `bytes`.
fn digest(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};

    Sha256::digest(bytes)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A daemon's listening end.
#[derive(Debug)]
pub struct Listener {
    raw: RawListener,
    identity: Option<(u64, u64)>,
}

impl Listener {
    /// Waits for a client; one of another user is an error of kind `PermissionDenied`, after which
    /// the listener is as good as before.
    pub async fn accept(&self) -> io::Result<Stream> {
        let stream = self.raw.accept().await?;
        check_peer(&stream)?;
        Ok(Stream(stream))
    }
}

/// A connection to the other process.
#[derive(Debug)]
pub struct Stream(RawStream);

/// A connection to the daemon for a program without a runtime.
#[derive(Debug)]
pub struct BlockingStream(RawBlockingStream);

impl io::Read for BlockingStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl io::Write for BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(unix)]
fn check_peer(stream: &impl StreamCommon) -> io::Result<()> {
    let peer = stream.peer_creds()?.euid();
    let own = rustix::process::geteuid().as_raw();
    if peer == Some(own) { Ok(()) } else { Err(foreign_peer()) }
}

#[cfg(windows)]
fn check_peer(stream: &impl StreamCommon) -> io::Result<()> {
    // A peer that cannot be looked up (it may just have left) is kept out by the pipe's access
    // list on one side and by the user's name in the pipe's name on the other.
    let Some(peer) = stream.peer_creds()?.pid() else { return Ok(()) };
    match crate::user_windows::of_process(peer) {
        Ok(user) if user != crate::user_windows::current()? => Err(foreign_peer()),
        _ => Ok(()),
    }
}

fn foreign_peer() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the other end belongs to another user")
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn data() -> (tempfile::TempDir, DataDirectory) {
        let temporary = tempfile::tempdir().unwrap();
        let data = DataDirectory::open_at(temporary.path().join("data")).unwrap();
        (temporary, data)
    }

    #[tokio::test]
    async fn bytes_go_both_ways_and_the_end_is_seen() {
        let (_temporary, data) = data();
        let endpoint = Endpoint::of(&data);
        let listener = endpoint.listen().unwrap();
        let (mut client, mut server) = tokio::try_join!(endpoint.connect(), async { listener.accept().await }).unwrap();
        client.write_all(b"ping").await.unwrap();
        client.flush().await.unwrap();
        let mut buffer = [0; 4];
        server.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"ping");
        drop(server);
        assert_eq!(client.read(&mut buffer).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_program_without_a_runtime_speaks_to_the_same_daemon() {
        use std::io::{Read, Write};

        let (_temporary, data) = data();
        let endpoint = Endpoint::of(&data);
        assert!(endpoint.connect_blocking().is_err(), "nobody is there");
        let listener = endpoint.listen().unwrap();
        let client = tokio::task::spawn_blocking(move || {
            let mut client = endpoint.connect_blocking().unwrap();
            client.write_all(b"ping").unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            answer
        });
        let mut server = listener.accept().await.unwrap();
        let mut buffer = [0; 4];
        server.read_exact(&mut buffer).await.unwrap();
        server.write_all(&buffer).await.unwrap();
        server.flush().await.unwrap();
        drop(server);
        assert_eq!(client.await.unwrap(), b"ping");
    }

    #[tokio::test]
    async fn nobody_there_is_an_error_a_client_understands() {
        let (_temporary, data) = data();
        let error = Endpoint::of(&data).connect().await.unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused), "{error:?}");
    }

    #[tokio::test]
    async fn the_recorded_endpoint_is_the_one_clients_use() {
        let (_temporary, data) = data();
        let last = Endpoint::candidates(&data).pop().unwrap();
        last.record(&data).unwrap();
        assert_eq!(Endpoint::of(&data), last);
        fs::write(data.endpoint_record(), "no such thing").unwrap();
        assert_eq!(Endpoint::of(&data), Endpoint::candidates(&data)[0]);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_long_path_is_replaced_by_a_short_private_one() {
        let temporary = tempfile::tempdir().unwrap();
        let data = DataDirectory::open_at(temporary.path().join("d".repeat(150))).unwrap();
        let endpoint = Endpoint::of(&data);
        assert!(endpoint.address().as_os_str().len() <= PATH_MAX);
        let listener = endpoint.listen().unwrap();
        let (client, _server) = tokio::join!(endpoint.connect(), listener.accept());
        client.unwrap();
        fs::remove_file(endpoint.address()).unwrap();
    }

    #[cfg(windows)]
    #[tokio::test]
    async fn whoever_waits_for_a_daemon_that_leaves_hears_of_it() {
        use std::time::Duration;

        let (_temporary, data) = data();
        let endpoint = Endpoint::of(&data);
        let listener = endpoint.listen().unwrap();
        // It takes the only instance there is until it is accepted.
        let _first = endpoint.connect().await.unwrap();
        let mut second = tokio::spawn({
            let endpoint = endpoint.clone();
            async move { endpoint.connect().await }
        });
        assert!(tokio::time::timeout(Duration::from_millis(200), &mut second).await.is_err());
        drop(listener);
        let heard = tokio::time::timeout(Duration::from_secs(10), second).await;
        assert!(heard.expect("it still waits").unwrap().is_err());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn only_sockets_are_removed_as_stale() {
        let (_temporary, data) = data();
        let endpoint = Endpoint::of(&data);
        drop(endpoint.listen().unwrap());
        assert!(endpoint.address().exists(), "the name outlives its daemon");
        endpoint.remove_stale().unwrap();
        endpoint.remove_stale().unwrap();
        fs::write(endpoint.address(), "precious").unwrap();
        assert!(endpoint.remove_stale().is_err());
        assert_eq!(fs::read_to_string(endpoint.address()).unwrap(), "precious");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_displaced_listener_is_noticed() {
        let (_temporary, data) = data();
        let endpoint = Endpoint::of(&data);
        let first = endpoint.listen().unwrap();
        assert!(endpoint.leads_to(&first));
        fs::remove_file(endpoint.address()).unwrap();
        assert!(!endpoint.leads_to(&first));
        let _second = endpoint.listen().unwrap();
        assert!(!endpoint.leads_to(&first));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn the_socket_is_closed_to_others() {
        use std::os::unix::fs::PermissionsExt;

        let (_temporary, data) = data();
        let endpoint = Endpoint::of(&data);
        let _listener = endpoint.listen().unwrap();
        assert_eq!(fs::metadata(endpoint.address()).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
