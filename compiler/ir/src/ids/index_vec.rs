//! Tables whose rows are found by ids of one type.

use crate::ids::Id;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut};

/// A table whose rows are found by ids of one type, and by nothing else.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IndexVec<I, T> {
    rows: Vec<T>,
    ids: PhantomData<I>,
}

impl<I: Id, T> IndexVec<I, T> {
    /// All ids, ascending.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.rows.len()).map(I::from_position)
    }

    /// All rows with their ids.
    pub fn iter_ids(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.rows.iter().enumerate().map(|(position, row)| (I::from_position(position), row))
    }

    /// A table that says something else of each id.
    pub fn map<U>(&self, of: impl FnMut(I) -> U) -> IndexVec<I, U> {
        self.ids().map(of).collect()
    }

    /// Adds a row, and returns its id.
    pub fn push(&mut self, row: T) -> I {
        self.rows.push(row);
        I::from_position(self.rows.len() - 1)
    }
}

impl<I, T> From<Vec<T>> for IndexVec<I, T> {
    fn from(rows: Vec<T>) -> Self {
        Self { rows, ids: PhantomData }
    }
}

impl<I, T> Default for IndexVec<I, T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<I, T> FromIterator<T> for IndexVec<I, T> {
    fn from_iter<A: IntoIterator<Item = T>>(rows: A) -> Self {
        Vec::from_iter(rows).into()
    }
}

impl<'a, I, T> IntoIterator for &'a IndexVec<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter()
    }
}

impl<I, T> Deref for IndexVec<I, T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.rows
    }
}

impl<I, T> DerefMut for IndexVec<I, T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.rows
    }
}

impl<I: Id, T> Index<I> for IndexVec<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, id: I) -> &T {
        &self.rows[id.position()]
    }
}

impl<I: Id, T> IndexMut<I> for IndexVec<I, T> {
    #[inline]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.rows[id.position()]
    }
}
