//! Records as applications send them, whole and cut, and what becomes of them.
