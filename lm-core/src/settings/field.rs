//! The Rust types of settings, to and from accepted values.

use std::path::PathBuf;

use serde_json::{Map, Value as Json};

use super::{kind::Value, secret::Secret};

/// A type that a setting may have.
pub(super) trait Field: Sized {
    /// From an accepted value; `None` where kind and type do not belong together.
    fn from_value(value: &Value) -> Option<Self>;
    /// To a value that can be shown; `None` where nothing is set.
    fn to_value(&self) -> Option<Value>;
}

macro_rules! plain_fields {
    ($($type:ty: $variant:ident;)*) => {$(
        impl Field for $type {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    Value::$variant(value) => Self::try_from(value.clone()).ok(),
                    _ => None,
                }
            }

            fn to_value(&self) -> Option<Value> {
                Some(Value::$variant(self.clone().into()))
            }
        }
    )*};
}

plain_fields! {
    bool: Switch;
    u32: Integer;
    u64: Integer;
    f64: Number;
    String: Text;
    PathBuf: Path;
    Secret: Secret;
    Map<String, Json>: Object;
}

/// Lists are empty rather than absent.
macro_rules! list_fields {
    ($($type:ty: $variant:ident;)*) => {$(
        impl Field for $type {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    Value::$variant(items) => Some(items.clone()),
                    _ => None,
                }
            }

            fn to_value(&self) -> Option<Value> {
                (!self.is_empty()).then(|| Value::$variant(self.clone()))
            }
        }
    )*};
}

list_fields! {
    Vec<String>: List;
    Vec<(String, Secret)>: Headers;
}

impl<T: Field> Field for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        T::from_value(value).map(Some)
    }

    fn to_value(&self) -> Option<Value> {
        self.as_ref().and_then(Field::to_value)
    }
}

macro_rules! choices {
    ($($(#[$about:meta])* $name:ident { $($(#[$variant_about:meta])* $variant:ident = $word:literal,)* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub enum $name {
            $($(#[$variant_about])* $variant,)*
        }

        impl $name {
            /// The words for the variants, in their order.
            pub const WORDS: &'static [&'static str] = &[$($word,)*];

            /// The word for this variant.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl Field for $name {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    $(Value::Text(word) if word == $word => Some(Self::$variant),)*
                    _ => None,
                }
            }

            fn to_value(&self) -> Option<Value> {
                Some(Value::Text(self.word().to_owned()))
            }
        }
    )*};
}

choices! {
    /// Who answers.
    Provider {
        /// Nobody outside this machine: places and excerpts.
        #[default]
        Offline = "offline",
        /// The Messages API of Anthropic and what speaks it.
        Anthropic = "anthropic",
        /// Any chat-completions endpoint.
        Openai = "openai",
    }

    /// Which repository a nested directory belongs to.
    RepoRootMode {
        /// The nearest repository: a submodule is a workspace of its own.
        #[default]
        Nearest = "nearest",
        /// The outermost repository: a submodule belongs to its superproject.
        Outermost = "outermost",
    }

    /// Whether questions about one workspace wait for each other.
    Concurrency {
        /// Several at once.
        #[default]
        Parallel = "parallel",
        /// One after the other.
        Serial = "serial",
    }

    /// How much is logged.
    LogLevel {
        /// What went wrong.
        Error = "error",
        /// And what looks wrong.
        Warn = "warn",
        /// And what happened.
        #[default]
        Info = "info",
        /// And how.
        Debug = "debug",
        /// And every step.
        Trace = "trace",
    }
}
