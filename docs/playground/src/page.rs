//! What the page does for the compiler while that works.

/// In the browser.
#[cfg(target_arch = "wasm32")]
mod imported {
    #[link(wasm_import_module = "page")]
    unsafe extern "C" {
        /// The time in seconds since some moment.
        pub(super) safe fn now() -> f64;
        /// Takes so many bytes of the output as news of a search.
        pub(super) safe fn improved(bytes: usize);
    }
}

/// In tests.
#[cfg(not(target_arch = "wasm32"))]
mod imported {
    use std::sync::OnceLock;
    use std::time::Instant;

    static BEGUN: OnceLock<Instant> = OnceLock::new();

    pub(super) fn now() -> f64 {
        BEGUN.get_or_init(Instant::now).elapsed().as_secs_f64()
    }

    pub(super) const fn improved(_: usize) {}
}

/// The time in seconds since some moment.
pub(crate) fn now() -> f64 {
    imported::now()
}

/// Tells the page of something shorter.
pub(crate) fn improved(news: String) {
    imported::improved(crate::put(news));
}
