//! Labels whose values are an enum, and a counter or a histogram for each of them.
//!
//! Must not: take a value that is not in the source.

use std::marker::PhantomData;

/// A label with a known number of values.
pub trait Label: Copy + 'static {
    const NAME: &'static str;
    /// All values, each at its [`Label::index`].
    const ALL: &'static [Self];

    fn as_str(self) -> &'static str;
    fn index(self) -> usize;
}

/// One `M` for each value of the label `L`; all exist from the start, so that the page shows zeros.
#[derive(Debug)]
pub struct ByLabel<L, M>(Box<[M]>, PhantomData<L>);

impl<L: Label, M: Default> Default for ByLabel<L, M> {
    fn default() -> Self {
        Self(L::ALL.iter().map(|_| M::default()).collect(), PhantomData)
    }
}

impl<L: Label, M> ByLabel<L, M> {
    /// The `M` of `label`.
    pub fn of(&self, label: L) -> &M {
        &self.0[label.index()]
    }

    pub fn iter(&self) -> impl Iterator<Item = (L, &M)> {
        L::ALL.iter().copied().zip(&self.0)
    }
}

/// Defines an enum that is a [`Label`].
macro_rules! label {
    (
        $(#[$doc:meta])*
        pub enum $Name:ident: $label:literal {
            $($(#[$note:meta])* $Value:ident = $word:literal),* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $Name {
            $($(#[$note])* $Value),*
        }

        impl Label for $Name {
            const NAME: &'static str = $label;
            const ALL: &'static [Self] = &[$(Self::$Value),*];

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Value => $word),*
                }
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

pub(super) use label;
