-- Threads of Haskell over several processors, for the end-to-end tests. Prints the same every time.
import Control.Concurrent
import Control.Concurrent.MVar
import Control.Exception
import Control.Monad
import qualified Data.Map as M

main :: IO ()
main = do
  dones <- forM [1 .. 20 :: Int] $ \i -> do
    done <- newEmptyMVar
    _ <- forkIO $ do
      let m = foldr (\k -> M.insertWith (+) (k * i `mod` 37) k) M.empty [1 .. 500 :: Int]
      r <- evaluate (M.foldlWithKey (\a k v -> (a * 31 + k * v) `mod` 1000003) 7 m)
      putMVar done r
    return done
  rs <- mapM takeMVar dones
  print (sum rs)
  chan <- newChan
  forM_ [1 .. 4 :: Int] $ \i -> forkOS $ forM_ [1 .. 100] $ \k -> writeChan chan (i * k)
  total <- sum <$> replicateM 400 (readChan chan)
  print total
  r <- try (evaluate (1 `div` (0 :: Int))) :: IO (Either ArithException Int)
  print r
  ready <- newEmptyMVar -- before that it could be killed without being able to say so
  said <- newEmptyMVar
  t <- forkIO ((putMVar ready () >> threadDelay 100000000)
               `catch` \e -> putStrLn ("killed: " ++ show (e :: AsyncException)) >> putMVar said ())
  takeMVar ready
  killThread t
  takeMVar said
  putStrLn "end"
