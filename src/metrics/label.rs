//! Labels whose values are an enum, and a counter or a histogram for each of them.
//!
//! Must not: take a value that is not in the source.

use std::marker::PhantomData;

use crate::model::words::Words;

/// A label of a metric.
pub trait Label: Words {
    const NAME: &'static str;
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
        let place = L::ALL.iter().position(|value| *value == label);
        &self.0[place.expect("`ALL` has each value of the label")]
    }

    /// Each of them, with the word of its label.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &M)> {
        L::ALL.iter().map(|label| label.as_str()).zip(&self.0)
    }

    /// As [`ByLabel::iter`], for metrics whose copies share their values.
    pub fn cloned(&self) -> Vec<(&'static str, M)>
    where
        M: Clone,
    {
        self.iter().map(|(word, one)| (word, one.clone())).collect()
    }
}

/// Defines enums of words that are [`Label`]s, or makes labels of such enums.
macro_rules! label {
    ($Name:ty: $label:literal) => {
        impl Label for $Name {
            const NAME: &'static str = $label;
        }
    };
    ($(#[$doc:meta])* pub enum $Name:ident: $label:literal { $($values:tt)* }) => {
        words! {
            $(#[$doc])*
            pub enum $Name { $($values)* }
        }

        label!($Name: $label);
    };
}

pub(super) use label;
