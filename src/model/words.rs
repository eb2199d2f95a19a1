//! Enums whose values have a word each, which files, metrics and people see.
//!
//! Must not: know any of them.

/// An enum whose values are known as a list, in their order.
pub trait Listed: Sized + 'static {
    const ALL: &'static [Self];
}

/// Defines an enum, the list of its values in their order, and the word of each.
macro_rules! words {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Name:ident {
            $($(#[$note:meta])* $Value:ident = $word:literal),* $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis enum $Name {
            $($(#[$note])* $Value),*
        }

        impl crate::model::words::Listed for $Name {
            const ALL: &'static [Self] = &[$(Self::$Value),*];
        }

        impl $Name {
            /// The word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Value => $word),*
                }
            }
        }
    };
}

pub(crate) use words;
