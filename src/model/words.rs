//! Enums whose values are words: for metrics, the audit log and people.
//!
//! Must not: take a word that is not in the source.

/// One of a known number of words.
pub trait Words: Copy + PartialEq + 'static {
    const ALL: &'static [Self];

    fn as_str(self) -> &'static str;

    /// The value that this is the word of.
    fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.as_str() == word)
    }
}

/// Defines an enum of [`Words`].
macro_rules! words {
    (
        $(#[$attribute:meta])*
        $vis:vis enum $Name:ident {
            $($(#[$note:meta])* $Value:ident = $word:literal),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $Name {
            $($(#[$note])* $Value),*
        }

        impl $Name {
            /// The word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Value => $word),*
                }
            }
        }

        impl $crate::model::words::Words for $Name {
            const ALL: &'static [Self] = &[$(Self::$Value),*];

            fn as_str(self) -> &'static str {
                Self::as_str(self)
            }
        }
    };
}

pub(crate) use words;
