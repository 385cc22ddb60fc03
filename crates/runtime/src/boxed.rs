//! Boxes with reusable memory, so that short-lived values need no allocation once warm.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};

use crate::pools::Pool;

/// A boxed value whose memory can be returned to [`Boxes`]. It has the size and speed of a `Box`.
// The memory of a one-element array can be recovered as an empty `Vec`, which is impossible for a plain box without `unsafe`.
#[derive(Debug)]
pub struct Boxed<T>(Box<[T; 1]>);

/// A free list of box memory.
#[derive(Debug)]
pub struct Boxes<T> {
    free: RefCell<Vec<Vec<T>>>,
    /// The number of boxes allocated.
    made: Cell<usize>,
}

impl<T> Boxed<T> {
    /// Boxes a value in new memory.
    pub fn new(value: T) -> Self {
        Self(Box::new([value]))
    }
}

impl<T> Deref for Boxed<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        let [value] = &*self.0;
        value
    }
}

impl<T> DerefMut for Boxed<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        let [value] = &mut *self.0;
        value
    }
}

impl<T> Default for Boxes<T> {
    fn default() -> Self {
        Self { free: RefCell::default(), made: Cell::default() }
    }
}

impl<T> Boxes<T> {
    /// Boxes a value, in reused memory if available.
    #[inline]
    pub fn put(&self, value: T) -> Boxed<T> {
        let free = self.free.borrow_mut().pop();
        let Some(mut memory) = free else {
            self.made.set(self.made.get() + 1);
            return Boxed::new(value);
        };
        memory.push(value);
        match memory.into_boxed_slice().try_into() {
            Ok(array) => Boxed(array),
            Err(_) => unreachable!("one value was pushed into an empty list"),
        }
    }

    /// Drops the value and keeps its memory.
    #[inline]
    pub fn take_back(&self, boxed: Boxed<T>) {
        let mut memory = (boxed.0 as Box<[T]>).into_vec();
        // Done before the list is borrowed, because dropping the value may use the boxes.
        memory.clear();
        self.free.borrow_mut().push(memory);
    }

    /// The entry in `show pools`.
    pub fn pool(&self, name: &'static str) -> Pool {
        Pool { name, size: size_of::<T>(), allocated: self.made.get(), free: self.free.borrow().len() }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn memory_is_reused_and_values_are_dropped() {
        let boxes = Boxes::default();
        let value = Rc::new(7);
        let mut boxed = boxes.put(value.clone());
        let place: *const Rc<i32> = &*boxed;
        assert_eq!(**boxed, 7);
        *boxed = Rc::new(8);
        assert_eq!(Rc::strong_count(&value), 1, "what was replaced is dropped");
        *boxed = value.clone();
        boxes.take_back(boxed);
        assert_eq!(Rc::strong_count(&value), 1, "what went back is dropped");
        let again = boxes.put(value.clone());
        assert!(std::ptr::eq(place, &*again), "the memory is the same");
        let other = boxes.put(value.clone());
        let pool = boxes.pool("x");
        assert_eq!((pool.allocated, pool.free), (2, 0));
        drop(again);
        boxes.take_back(other);
        assert_eq!(boxes.pool("x").free, 1);
        assert_eq!(Rc::strong_count(&value), 1);
    }
}
