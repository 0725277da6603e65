//! What bears secrets: by name, and by what its text holds.

mod by_content;
mod by_name;

pub(crate) use by_content::holds_secret;
pub(crate) use by_name::is_secret_name;
pub(super) use by_name::{is_private_directory, is_secret_name_in};
