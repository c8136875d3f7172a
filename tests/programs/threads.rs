// Threads of Rust, for the end-to-end tests. Prints the same every time.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Condvar, Mutex, RwLock};
use std::thread;

fn main() {
    let count = Arc::new(Mutex::new(0u64));
    let atomic = Arc::new(AtomicU64::new(0));
    let both = Arc::new(RwLock::new(vec![0u64; 16]));
    let barrier = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4u64)
        .map(|me| {
            let (count, atomic, both, barrier) = (count.clone(), atomic.clone(), both.clone(), barrier.clone());
            thread::Builder::new().name(format!("worker-{}", me)).spawn(move || {
                let mut leaders = 0;
                for i in 0..500u64 {
                    *count.lock().unwrap() += me;
                    atomic.fetch_add(i, Ordering::Relaxed);
                    if i % 50 == 0 {
                        both.write().unwrap()[(me * 4 + i / 50 % 4) as usize] += 1;
                        leaders += barrier.wait().is_leader() as u64;
                    } else {
                        assert!(both.read().unwrap().len() == 16);
                    }
                }
                leaders
            }).unwrap()
        })
        .collect();
    let leaders: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    println!("{} {} {} {:?}", *count.lock().unwrap(), atomic.load(Ordering::SeqCst), leaders, both.read().unwrap());

    let (tx, rx) = mpsc::channel();
    for me in 0..3u64 {
        let tx = tx.clone();
        thread::spawn(move || {
            for i in 0..200u64 {
                tx.send(i * me).unwrap();
            }
        });
    }
    drop(tx);
    println!("channel {}", rx.iter().sum::<u64>());

    let pair = Arc::new((Mutex::new(0), Condvar::new()));
    let other = pair.clone();
    let t = thread::spawn(move || {
        for i in 0..100 {
            let mut turn = other.0.lock().unwrap();
            while *turn != i * 2 + 1 {
                turn = other.1.wait(turn).unwrap();
            }
            *turn += 1;
            other.1.notify_one();
        }
    });
    for i in 0..100 {
        let mut turn = pair.0.lock().unwrap();
        *turn += 1;
        pair.1.notify_one();
        while *turn != i * 2 + 2 {
            turn = pair.1.wait(turn).unwrap();
        }
    }
    t.join().unwrap();
    println!("turns {}", *pair.0.lock().unwrap());
    std::panic::set_hook(Box::new(|_| {}));
    println!("panicked {}", thread::spawn(|| { let v: Vec<i32> = vec![]; v[0] }).join().is_err());
}
