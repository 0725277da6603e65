//! Which directory a session is about, and the variables it brings.

use std::{
    env,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lm_proto::message::{INHERITED_KEYS, PROVIDER_KEYS, SessionEnvironment};
use rmcp::{RoleServer, service::Peer};
use tokio::{sync::watch, time::timeout};

/// How long a call waits for the client to name its roots, once in a session.
const ROOTS_PATIENCE: Duration = Duration::from_secs(1);

/// What begins the names of the variables that are sent along.
const VARIABLE_PREFIX: &str = "LIVE_MEMORY_";

/// The session's variables, sent with each request.
pub(crate) fn environment() -> SessionEnvironment {
    env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX) && name != INHERITED_KEYS)
        .collect()
}

/// The same for questions, with the provider keys that this session has: a provider that was chosen
/// without a key uses the one that other tools use. They go to the user's own daemon, for this request.
pub(crate) fn environment_for_questions() -> SessionEnvironment {
    let mut environment = environment();
    let value = |name: &'static str| Some((name.to_owned(), env::var(name).ok().filter(|value| !value.is_empty())?));
    environment.extend(PROVIDER_KEYS.into_iter().filter_map(value));
    environment
}

/// The same for reports, with the names of the provider keys that this session has; their values stay
/// here.
pub(crate) fn environment_for_reports() -> SessionEnvironment {
    let mut environment = environment();
    let has = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let keys: Vec<&str> = PROVIDER_KEYS.into_iter().filter(has).collect();
    if !keys.is_empty() {
        environment.push((INHERITED_KEYS.into(), keys.join(",")));
    }
    environment
}

/// Finds the directory that a call is about.
#[derive(Clone, Default)]
pub(crate) struct SessionDirectory {
    roots: Arc<Mutex<Roots>>,
}

#[derive(Default)]
struct Roots {
    /// The answer to `roots/list`, as soon as there is one; none before it was asked.
    asked: Option<watch::Receiver<Option<Option<PathBuf>>>>,
    /// A call has waited in vain; later ones take what has come by then.
    slow: bool,
}

impl SessionDirectory {
    /// The directory for a call: what the call says, else the client's first root, else the
    /// client's project, else where this process runs. The error is for the model.
    pub(crate) async fn resolve(&self, given: Option<&str>, peer: &Peer<RoleServer>) -> Result<String, String> {
        match given {
            Some(given) => match absolute(given) {
                Some(path) => to_text(&path),
                None => {
                    let session = self.of_session(peer).await.map(|path| format!(" (`{path}`)")).unwrap_or_default();
                    Err(format!(
                        "`cwd` is `{given}`, which is not an absolute path; pass the absolute path of a directory, \
                         or leave `cwd` out to ask about this session's directory{session}"
                    ))
                }
            },
            None => self.of_session(peer).await,
        }
    }

    /// The client's roots have changed; they are asked for again when needed.
    pub(crate) fn forget_roots(&self) {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner).asked = None;
    }

    async fn of_session(&self, peer: &Peer<RoleServer>) -> Result<String, String> {
        if let Some(root) = self.root(peer).await {
            return to_text(&root);
        }
        let project = env::var_os("CLAUDE_PROJECT_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let directory = match project {
            Some(project) => project,
            None => env::current_dir().map_err(|error| {
                format!(
                    "this session's directory cannot be read ({error}); pass `cwd`, the absolute path of a directory"
                )
            })?,
        };
        to_text(&directory)
    }

    async fn root(&self, peer: &Peer<RoleServer>) -> Option<PathBuf> {
        peer.peer_info()?.capabilities.roots.as_ref()?;
        let (mut answer, slow) = {
            let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = roots.asked.get_or_insert_with(|| ask_for_root(peer.clone())).clone();
            (answer, roots.slow)
        };
        if !slow && timeout(ROOTS_PATIENCE, answer.wait_for(Option::is_some)).await.is_err() {
            self.roots.lock().unwrap_or_else(PoisonError::into_inner).slow = true;
        }
        let root = answer.borrow().clone();
        root.flatten()
    }
}

/// Asks the client for its roots in the background, since it may take long or never answer.
#[expect(deprecated, reason = "roots are what clients of the versions with `initialize` offer")]
fn ask_for_root(peer: Peer<RoleServer>) -> watch::Receiver<Option<Option<PathBuf>>> {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        let listed = peer.list_roots().await;
        let root = listed.ok().and_then(|listed| listed.roots.iter().find_map(|root| absolute(&root.uri)));
        // Nobody may be waiting any more.
        drop(sender.send(Some(root)));
    });
    receiver
}

/// An absolute path, or the path that a `file:` URI stands for.
fn absolute(given: &str) -> Option<PathBuf> {
    let path = if given.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file://")) {
        path_of_uri(&given[7..])?
    } else {
        PathBuf::from(given)
    };
    path.is_absolute().then_some(path)
}

/// The path in what follows `file://`; none for another host.
fn path_of_uri(rest: &str) -> Option<PathBuf> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return None;
    }
    let path = String::from_utf8(percent_decoded(path.split(['?', '#']).next()?)?).ok()?;
    // `/C:/Users` on Windows.
    let drive = path.as_bytes().get(2) == Some(&b':');
    Some(PathBuf::from(if cfg!(windows) && drive { &path[1..] } else { &path }))
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    Some(bytes)
}

/// Paths travel as text.
pub(crate) fn to_text(path: &Path) -> Result<String, String> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        format!("the directory `{}` has a name that is not Unicode and cannot be asked about", path.display())
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn paths_and_file_uris_are_read() {
        for (given, expected) in [
            ("/w/s", Some("/w/s")),
            ("file:///w/My%20Repo/%C3%BC", Some("/w/My Repo/ü")),
            ("FILE://localhost/w", Some("/w")),
            ("file:///w%", None),
            ("file:///w%+1", None),
            ("file:///w%FF", None),
            ("file://elsewhere/w", None),
            ("file://", None),
            ("https://w", None),
            ("w/s", None),
            ("./w", None),
            ("~", None),
            ("", None),
        ] {
            assert_eq!(absolute(given).as_deref(), expected.map(Path::new), "{given}");
        }
    }
}
