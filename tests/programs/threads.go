// Goroutines, channels, and loops that can only be preempted by a signal; for the end-to-end tests.
// Prints the same every time.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	runtime.GOMAXPROCS(4)
	// A loop without calls: SIGURG takes the processor from it.
	var n, stop int64
	for i := 0; i < 4; i++ {
		go func() {
			for x := 0; ; x++ {
				if x&0xffff == 0 && atomic.LoadInt64(&stop) != 0 {
					return
				}
			}
		}()
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	sum := 0
	ch := make(chan int, 3)
	for i := 0; i < 50; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			for k := 0; k < 50; k++ {
				mu.Lock()
				sum += i
				mu.Unlock()
				atomic.AddInt64(&n, 1)
			}
			ch <- i
		}(i)
	}
	total := 0
	for i := 0; i < 50; i++ {
		total += <-ch
	}
	wg.Wait()
	atomic.StoreInt64(&stop, 1)
	fmt.Println("goroutines", sum, n, total)
	for i := 0; i < 3; i++ {
		garbage := make([][]byte, 0)
		for k := 0; k < 200; k++ {
			garbage = append(garbage, make([]byte, 4000))
		}
		runtime.GC()
		fmt.Println("garbage", len(garbage))
	}
	func() {
		defer func() { fmt.Println("recovered", recover()) }()
		var p *int
		*p = 1
	}()
	select {
	case <-time.After(5 * time.Millisecond):
		fmt.Println("after")
	case <-ch:
	}
	out, err := exec.Command("sh", "-c", "echo child; exit 3").Output()
	fmt.Printf("%s%v\n", out, err)
	os.Exit(5)
}
