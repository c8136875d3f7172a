// Worker threads, the thread pool, shared memory with Atomics, and code that gets compiled while it
// runs; for the end-to-end tests. Prints the same every time.
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto');
const fs = require('fs');
const zlib = require('zlib');

function hot(n) {
	let s = 0;
	for (let i = 0; i < n; i++) s = (s * 31 + (i ^ (s >> 3))) | 0;
	return s;
}

if (!isMainThread) {
	const shared = new Int32Array(workerData.memory);
	for (let i = 0; i < 500; i++) Atomics.add(shared, 0, workerData.me);
	parentPort.on('message', (n) => {
		if (n === null) process.exit(0);
		parentPort.postMessage(hot(n));
	});
} else {
	const memory = new SharedArrayBuffer(64);
	const workers = [1, 2].map((me) => new Worker(__filename, { workerData: { me, memory } }));
	const ask = (w, n) => new Promise((done) => { w.once('message', done); w.postMessage(n); });
	(async () => {
		let sum = 0;
		for (let i = 0; i < 20; i++)
			sum += (await Promise.all(workers.map((w, k) => ask(w, 20000 + i + k)))).reduce((a, b) => a ^ b, 0);
		const ends = workers.map((w) => new Promise((done) => w.once('exit', done)));
		workers.forEach((w) => w.postMessage(null));
		console.log('workers', sum, await Promise.all(ends), Atomics.load(new Int32Array(memory), 0));
		const keys = await Promise.all([1, 2, 3, 4, 5].map((i) => new Promise((done) =>
			crypto.pbkdf2('deja', String(i), 500, 16, 'sha256', (e, k) => done(k.toString('hex'))))));
		console.log('pool', keys.join(' '));
		const packed = await new Promise((done) => zlib.gzip(Buffer.alloc(50000, 'time travel '), (e, b) => done(b)));
		console.log('gzip', zlib.gunzipSync(packed).length);
		console.log('file', (await fs.promises.readFile(__filename)).includes('Atomics'));
		let t = 0;
		for (let i = 0; i < 300; i++) t ^= hot(1000 + i);
		console.log('hot', t);
		await new Promise((done) => setTimeout(done, 5));
	})();
}
