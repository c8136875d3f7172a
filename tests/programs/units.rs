// Two modules, so that rustc with two code generation units has two threads that generate code.
pub mod sums {
	pub fn weighted(values: &[u64]) -> u64 {
		values.iter().enumerate().map(|(i, v)| v * (i as u64 + 1)).sum()
	}
}

pub mod names {
	pub fn numbered(n: u32) -> String {
		format!("{}-{}", n, n + 1)
	}
}
