//! A text that is never shown.

/// An API key or another credential. It has neither `Debug` nor `Display`, so that no log line and
/// no error can contain it by accident; [`Secret::reveal`] is the only way to the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the request that needs it and for nothing else.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}
