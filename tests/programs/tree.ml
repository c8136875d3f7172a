(* A balanced map, an exception, and floats. *)
module M = Map.Make (Int)
exception Found of int
let m = List.fold_left (fun m i -> M.add (i * 37 mod 1009) i m) M.empty (List.init 2000 Fun.id)
let () =
  (try M.iter (fun k v -> if k + v > 2500 then raise (Found k)) m with Found k -> Printf.printf "found %d\n" k);
  Printf.printf "%d %.10f\n" (M.cardinal m) (M.fold (fun k _ a -> a +. sqrt (float k)) m 0.)
