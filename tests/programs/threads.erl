%% Processes of Erlang over several schedulers, for the end-to-end tests. Prints the same every time.
-module(threads).
-export([main/0]).

ring(0, Last) -> Last;
ring(N, Next) -> ring(N - 1, spawn(fun() -> pass(Next) end)).

pass(Next) -> receive stop -> Next ! stop; N -> Next ! N + 1, pass(Next) end.

fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).

main() ->
    Self = self(),
    First = ring(100, Self),
    First ! 0,
    receive Once -> io:format("ring ~p~n", [Once]) end,
    [spawn(fun() -> Self ! {I, fib(12 + I rem 4)} end) || I <- lists:seq(1, 40)],
    io:format("sum ~p~n", [lists:sum([receive {I, F} -> F end || I <- lists:seq(1, 40)])]),
    First ! stop,
    receive stop -> ok end,
    T = ets:new(t, [public, {write_concurrency, true}]),
    Ps = [spawn_monitor(fun() -> [ets:update_counter(T, K rem 7, 1, {K rem 7, 0}) || K <- lists:seq(1, 200)] end)
          || _ <- lists:seq(1, 5)],
    [receive {'DOWN', M, _, _, _} -> ok end || {_, M} <- Ps],
    io:format("ets ~p~n", [lists:sort(ets:tab2list(T))]),
    io:format("file ~p~n", [filelib:is_file("threads.erl")]),
    halt(3).
